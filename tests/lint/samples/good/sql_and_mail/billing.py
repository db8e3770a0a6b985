import smtplib
from datetime import date
from email.message import EmailMessage

QUERY = """SELECT id, customer, amount FROM invoices WHERE customer = '{customer}' AND due < '{today}'
AND amount > 0 AND NOT EXISTS (SELECT 1 FROM payments WHERE payments.invoice = invoices.id)
ORDER BY due, customer, amount LIMIT 500 OFFSET 0"""
LETTER = """Dear {name},

your invoice {number} of {day} is still open. Please pay it within ten days. You can reach us from
nine to five. If you have paid in the meantime, please take this letter as done. Answer this mail
only if you do not agree with the amount. You will find our account number on the invoice.

Yours sincerely
"""


def remind(cursor, customer):
    for row in cursor.execute(QUERY.format(customer=customer.id, today=date.today())):
        mail = EmailMessage()
        mail["Subject"] = f"Invoice {row[0]} of {date.today()}"
        mail.set_content(LETTER.format(name=customer.name, number=row[0], day=date.today()))
        with smtplib.SMTP("localhost") as server:
            server.send_message(mail)

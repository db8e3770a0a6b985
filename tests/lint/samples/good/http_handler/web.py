from datetime import datetime
from http.server import BaseHTTPRequestHandler

PAGE = """<html><body><p>Hello {name}, it is {time}.</p><p>You are on the pages of a small museum.
The museum is open from Tuesday to Sunday. You can buy tickets at the entrance. You must leave bags
in the locker. Please do not touch the exhibits. Assistants in green coats answer your questions.</p>
</body></html>"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        message = f"{datetime.now()}: request of {self.path} by {self.client_address}"
        self.log_message("%s", message)
        body = PAGE.format(name=self.headers.get("X-Name", "visitor"), time=datetime.now())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

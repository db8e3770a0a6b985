import logging
import uuid
from datetime import datetime

log = logging.getLogger("orders")

WELCOME = """You are now connected to the order service. You should keep this window open until
all orders have been transferred. If the connection is lost, the service tries again three times
and then writes a report. You must not start a second transfer while the first one is running."""


def record(order, user_name):
    log.info(f"{datetime.now().isoformat()} {user_name} ordered {order.title} ({uuid.uuid4()}). {WELCOME}")
    log.warning("Order %s of user %s was late. %s", order.id, user_name, WELCOME)

"""You are reading the help of a small tool. You should call it with a file and a number.

Answer the questions that it asks with yes or no. If you answer something else, it asks again.
"""

import argparse
import getpass
import os
from datetime import datetime

USAGE = """You are {user}, it is {now}. You must name the file that is to be converted.
The assistant asks three questions, and you can answer each of them with yes, no or later.
Do not close the terminal before the last question has been answered, or you begin again."""


def main():
    parser = argparse.ArgumentParser(
        description=USAGE.format(user=getpass.getuser(), now=datetime.now())
    )
    parser.add_argument("file", help=f"default: {os.getcwd()}/input.txt, see the manual for more")
    print(f"Hello {getpass.getuser()}, it is {datetime.now()}. {__doc__}")
    return parser.parse_args()

QUERY = """query Orders($user: ID!) {{
  user(id: $user) {{ name orders(first: {count}, after: "{cursor}") {{ nodes {{ id total }} }} }}
  system {{ time instructions answer(question: "{question}") {{ text context }} }}
}}"""
STYLE = """.card {{ color: {color}; }} .card:hover {{ background: {background}; }}
.system, .user, .assistant {{ margin: 4px; padding: 2px; border: 1px solid {border}; }}
.answer {{ font-weight: bold; }} .question {{ font-style: italic; }} .context {{ display: none; }}"""


def page(cursor, question, theme):
    return QUERY.format(count=10, cursor=cursor, question=question), STYLE.format(**theme)

"""The dashboard: HTML made on the server, from what the API answers with.

Here is what pages show, and how they stay live. What they need of dispatchers, they ask as the API
does (`client.connection`), with the rights of who looks. No page changes anything: buttons call the
API. `table.py` lists the pages.
"""

"""The gateway: many MCP servers behind one address, each caller seeing only theirs.

The way in      entry, settings, life (opens and closes it all), examine (for the doctor)
Tools, routes   tools and routes (a caller's), administration_tools (an administrator's), pace (how often)
The service     service (what the three tools do), model (its words), contract (the tools' schemas and errors)
A question      resolving and learning (ids to servers), fanout (asks several at once), filters, searching and merging
                (hits of all in one order), synthesis and provided (answers), discovery and overview (what there is),
                telling (how it went)
Servers         remote (one behind a connection), own (what is kept here), understanding and untrusted (what servers
                answer), known (what they told lately), proxy and declared (tools of generic servers), standalone
                (`rag-server`)
Who may what    access (groups), refusals and errors, sensitive (parameters that are secrets), connections (tokens lent
                to us), capability_tokens and keys (tokens of ours), keyring (which of them goes where)
The registry    server_files (both files), server_entries (one server), server_schema (for editors), live (what is in
                force now), administration and masks (changing it, and what is shown of it)
Connections     upstreams/: processes and addresses, when they fail, and what is counted; metrics
"""

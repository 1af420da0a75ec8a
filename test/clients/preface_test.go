package clients

// preface is what docs/clients.md says before its tables.
const preface = `# What clients get

What a client of Kubernetes gets from the query API, beside what a real API server
answers it. ` + "`make clients`" + ` plays every row with the real client, over three members
whose objects have the same names, and fails where a cell is not what the client got:
this file is written by ` + "`make clients CLIENTS=write`" + `.

- *same* is what the real API server of that member answers, cell by cell or field by
  field, but for what is always different: resourceVersions are federator's own, and
  objects carry the annotations ` + "`federator.dev/…`" + `.
- *all members' exactly* is what the real API servers of all members answer, together
  and nothing else.
- Cells count what the client shows.
- Federator keeps values of Secrets, Events and Leases here (` + "`keepSecretValues`, `kinds`" + `), which
  it does not by default.
`

// Package externaldata reads the documents from outside the fleet that PolicySources name, for policies: data.fleet.external.
//
// A document is a file of the source's active commit, a ConfigMap, or what an HTTPS server answers. A Manager reads each time and
// again, checks it (size, JSON or YAML, schema), and publishes all as one State: contents for policies, and what is known of each for
// people. No evaluation fetches anything.
//
// What was read last stays until it is older than the document may be. A document that is too old, that its source says is not
// there, or that is not valid, has a Problem: verdicts that read it are Unknown. So has one that has not been read since the start.
//
// # Servers
//
// An HTTPS server is hostile. Its name is pinned by the URL: redirects and proxies are refused, the certificate is verified, and
// Options.Dial may refuse addresses. Answers are bounded in bytes and time; what has not changed by its ETag is not sent
// again; failures are retried with growing delays.
//
// # Several processes
//
// Each process of a fleet reads all documents. They ask at the same times of the clock, which interval and name give, so that they
// differ for a moment only.
//
// # Concurrency
//
// Manager.Run owns one goroutine per document, and joins them. All other methods are safe for concurrent use and do not
// block. A State is immutable.
//
// # Trade-offs
//
// Nothing is kept on disk: after a restart nothing is known of a document before it has been read. Documents that change every few
// seconds cost the evaluations of who reads them each time; they are asked for at most every ten seconds.
package externaldata

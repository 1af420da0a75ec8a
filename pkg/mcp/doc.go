// Package mcp serves the query API to assistants: a few read-only tools of the Model Context Protocol, over HTTP and over
// standard input and output.
//
// A tool is answered by requests to the query API, and by nothing else: over HTTP by the very handlers that serve other requests, as
// the caller who has sent the message (Server.ServeCaller), on standard input and output by a query API elsewhere, with the caller's own
// credentials (Server.Run). So a tool cannot show what the caller may not read. No credentials come here: neither tokens nor cookies.
//
// # Answers
//
// An answer is structured, with a schema, and has at most 8,000 bytes. It says how fresh it is, exact numbers, and what was cut. All that
// comes from objects is below its field "untrusted", in JSON, without invisible characters; descriptions of the tools say that it is data.
// The same JSON is in the answer's text, for clients that do not read structured content.
//
// # Arguments
//
// Arguments come from a model that may have read what an attacker has written. They are in the query of a request, never in its
// host; what of them is in a path, such as a namespace, is checked, and so is each path.
//
// # Concurrency
//
// Methods of a Server may be called from any goroutine. A request is stateless: nothing is kept between two of them. ServeCaller and Run
// return when the calls that they have started have ended. Each call makes its requests one after the other.
//
// # Trade-offs
//
// Each page is of one revision, but numbers are counted by a request of their own: where the fleet has changed in between, the answer
// says at what revision they are. Pages that do not fit are asked for again with fewer rows, so that continue fits the answer.
// The query API authenticates its callers itself, before anything is decoded here: the bearer check of the SDK would know neither its
// audit, nor a hub that does not answer.
package mcp

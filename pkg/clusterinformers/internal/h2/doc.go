// Package h2 is an HTTP/2 client transport for very many streams from which little
// comes: a fleet's watches. It is an [http.RoundTripper] below those that add
// credentials.
//
// An idle stream is a few hundred bytes: it has no goroutine, buffer or timer. A
// connection has one goroutine, which parses frames, copies DATA into pooled chunks and
// says which streams have something to read; it neither writes nor waits for anybody. A
// second goroutine writes, and exists only while there is something to write. A request
// has none of its own: RoundTrip sends its body and waits for the headers on its caller's.
// The body of a response is a stream.Stream: it is read when there is something to read.
//
// # Flow control
//
// What has come for a stream is bounded by its window, which is returned as the body is
// read. The connection's window is returned on receipt, so that no stream holds up
// another. [RequestOptions] bound a stream's window and charge somebody for what is held.
//
// # Connections
//
// A host has as many connections as its streams need, each with at most as many as the
// server allows: one until it has said. Four of them are reserved for short requests. A
// stream that was reset counts until the server has acknowledged a PING behind it. After
// GOAWAY a connection's streams drain; those that the server did not begin are sent again
// elsewhere, as are those that it refused.
//
// # What a server may do
//
// Servers may be hostile. Frames have at most 16 KiB, lists of headers 64 KiB, the table
// of header compression 4 KiB. A peer that sends more PING, SETTINGS, RST_STREAM, empty DATA,
// 1xx or unknown frames than make sense loses the connection. Violations are a
// [*ProtocolError]. Trailers are read, bounded, and dropped; so are pushes refused. A
// redirect is returned like any other response; a Content-Encoding that was not asked for
// is an error.
//
// # Absent
//
// Request trailers, CONNECT, 100-continue, server push, priorities, compression, proxies
// and plain http have no place here; [Options.Fallback] takes plain http, and hosts that do
// not speak HTTP/2.
package h2

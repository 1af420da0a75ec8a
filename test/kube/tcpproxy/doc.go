// Package tcpproxy is a TCP proxy that misbehaves on request: it can refuse,
// cut, swallow, delay, throttle and reset, switched while connections are open.
//
// It stands between a client and an API server in tests. It does not look into
// the stream, so TLS is verified end to end. Bytes already accepted from one
// side are never lost by a change of mode: what a black hole or a delay held
// back is forwarded, in order, once the mode allows it.
//
// All methods of [Proxy] may be called from any goroutine. A proxy owns one
// goroutine, and five per open connection; Close joins them all.
package tcpproxy

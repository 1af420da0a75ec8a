// Package multiplex carries any number of reads of the query API in one response, so that a
// browser, which has six connections and shares them among its tabs, needs one for all of them.
//
// A subscription is a path of the API. One with watch=true is a watch, whose events are passed on
// as they come. Any other is a question: its whole answer is sent, and sent again when it has
// changed. All questions of a caller share a budget of time, in whatever streams they are, so that open
// pages cost the server a few percent of a core for each user, however often the fleet changes.
//
// The response is a line of JSON for each of these:
//
//	{"id":"a","event":{…}}     an event of a watch
//	{"id":"b","value":{…}}     the answer to a question
//	{"id":"b","retry":{…}}     a Status: the answer that was sent may be outdated; it is asked again
//	{"id":"a","error":{…}}     a Status that ends the subscription
//	{"id":"a","end":true}      a watch has ended as watches do, and can be resumed
//	{"beat":"…"}               the time of the server: the stream is alive
//	{"session":{"ended":"…"}}  the last line: the caller's credentials do not count any more
//
// A stream's subscriptions never change: for others, clients open another stream, with watches
// that resume, and end this one. So a stream has no state that a server or replica would keep.
//
// Each subscription has a goroutine, which Handler.Serve joins, and another one writes. A client
// that does not read costs maxBuffered bytes, and is disconnected after Options.WriteTimeout.
package multiplex

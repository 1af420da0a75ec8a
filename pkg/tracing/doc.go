// Package tracing follows single changes of members' objects through federator, as OpenTelemetry traces: one
// trace for each change that leads to an Action, for a sample of the others, and for those that were slow.
//
// # From instants to spans
//
// Whether a change is worth a trace is known once it has been judged, and corrected: sampling at its beginning
// would miss what matters. So each change costs a [Stamp], a few instants that callers take, in a table
// of fixed size whose slot follows from the revision: nothing is allocated or searched. [Tracer.Evaluated], called once for
// each batch of the policy engine, decides, and what is kept goes into a bounded queue. Spans are made
// of it by [Tracer.Run], which sends them by OTLP.
//
// A trace has these spans: change, with read, decode, commit, batch (the wait for it), view and evaluation; and for each Action
// correction, with intent, gate, "dry run", Action (its record on the hub), write, outcome (recorded) and echo (the write comes back by
// the member's watch). A batch is a trace of its own, since several changes share it: span batch links to it.
// The change that is the echo is traced as well, and the two link to each other.
//
// # IDs
//
// [Tracer.TraceOf] derives a change's trace ID from its revision and the installation, within which
// revisions never repeat. Nothing is kept for it: any part of a process, or another process of the installation, computes the same one,
// sampled or not. IDs of spans follow from the trace and the stage, so that traceparent can be sent to
// a member before there is a span.
//
// # Concurrency
//
// The methods of [Tracer] may be called from any goroutine, and none of them waits for an exporter or
// allocates where nothing is kept; Run once. What the queue cannot take is dropped and counted. An [Attempt] belongs to one goroutine. All of
// them may be called on nil, which does nothing: that is how tracing is off.
//
// # Trade-offs
//
// The table forgets a change after as many others as it has slots; its trace then begins with what is
// known. Lists are one commit of many changes, which have IDs but no instants. A change that is overtaken by the
// next one of its object within one batch is traced until the batch only.
//
// The echo of a write is seen by the process that reads the member: where several share a fleet and another one does, the trace of
// a correction ends without it. So does the trace of a change whose readers another process judges end with the verdicts here.
package tracing

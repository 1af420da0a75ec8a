// Package exchange carries what policies of one process need of the members that others judge.
//
// Each process has an [Exporter], which tells what it judges, and an [Importer], which writes what the others tell into an
// index of its own, the peers' index, that only policies read. Between an importer and an exporter there is one stream, a
// response over HTTP/2 that has no end. Nothing is queued for anybody, and nothing rests on delivery: a stream says what
// is, digests say that what was told is what the exporter has, and whatever is not certain is Stale or Unknown.
//
// # Requests
//
//	POST /exchange/v1/stream?since=<epoch>.<sequence>&again=<member>&again=<member>%20<kind>
//	GET  /exchange/v1/digests?member=<member>&stream=<stream>
//
// The body of the first has no end either: frames of interest, which say what the importer asks for (package interest). The first one
// is what it has of since, the second what it asks for, and others follow while it is told. A GET of the stream asks for everything.
//
// Who asks must have been verified before [Exporter.ServeHTTP] is called, by a certificate of the fleet's processes.
//
// # Frames
//
// The stream is one zstd frame, with one window, which is flushed after each batch: an object that changes, or is like the
// one before, costs its difference. In it are frames of a type, a length and a payload (package internal/wire), and not
// lines of JSON: the bytes of a record are what is hashed and what is stored, nothing is parsed twice, and the bound of
// each frame is checked before it is read.
//
//	interest  what an importer asks for, with a number; the only one that it sends
//	hello     protocol version, process, epoch, stream, and whether it is resumed: what follows is what changed
//	begin     begins a batch: its sequence, whether it is the state, so that members that it has not are gone, and the number of
//	          what was asked for, of which it is
//	gone      a member that is not judged here any more
//	member    begins what the batch has of a member: name, whether it is all of it, and what is known of it if that changed
//	scope     begins what the batch has of a scope: kind, projection, resource, status, and whether records are replaced
//	noscope   a scope that is no more
//	record    resourceVersion, namespace, name, UID, labels, owners, and the projection as JSON
//	delete    an object that is not exported any more, or not asked for
//	end       ends a member, its frontier: the number of its records, its digest, and a hash of the stream so far
//	frontier  ends the batch: epoch, sequence, revision of the exporter's index, time, the number of what was asked for, and a hash of
//	          the stream so far
//	ping      says that the exporter lives, and knows nothing yet, or looks for what is asked for; it may come anywhere
//
// Their order is
//
//	hello ( ping | [ begin gone* ( member ( noscope | scope ( record | delete )* )* end )* ] frontier )*
//
// A frontier without a batch is a heartbeat, each second. A batch is all of one export, and the first one is the state
// unless the stream is resumed. It is applied member by member, each at its end, if number and digest are right: what is
// held of a batch is one member, and not all of an exporter. The position from which a stream is resumed is a frontier's.
//
// # Exporter
//
// [Exporter.Changed] only notes names, which coalesce. The goroutine of [Exporter.Run] compares what is named with a table
// that has 16 bytes for each record: the hash of what was told. What is the same is not told, whatever was named; an object
// of which only the resourceVersion differs is the same, since it is for objects that change in what nobody reads. What
// differs is a step, and has a sequence. A log has each key, of a member, scope or object, at its last sequence only: who
// resumes is told of each key once, and what it is now, so that a slow importer costs the keys that changed and no copies.
// Where the log, bounded in bytes, does not reach back, the state is told again, in the same stream.
//
// An importer is told records that have a key that it asks for, and those of which something is not known. What a record is
// wanted for follows from it alone, so that what an importer is to have follows from the export and the set. Of who does not ask for
// everything, the stream keeps the hashes of what it told: the digests of members are of these, and a record that changes so that it is
// not asked for any more, or whose keys are not, is told as a delete. After a resume they are calculated again of a member once something is
// told of it. If more is asked for, [Export.Find] looks it up, without reading objects; if less, or whole spaces, the keys of all are
// looked at, one member after the other. This is done at most each 50 ms, and less often where it takes long.
//
// A stream has an encoder, the export that it tells of while it does, and no queue. Who does not read for [ExporterOptions].Stall
// is cut. A scope with an object that is too large, or that cannot be read, is told as OverBudget without records.
//
// # Importer
//
// A goroutine for each peer reads its stream, another one audits. A member is taken from its source, which is the judge
// that [Importer.SetFleet] names, once that has told all of it. Until then its former source counts, whose changes are
// taken and whose content stays; afterwards nothing of that is taken any more, so that a moved member never flips back. All of a
// member replaces what there was in one commit for each scope, in which what is the same keeps its revision. A batch of
// changes is one commit for each scope, with its status. What a peer told of a member before it was known to be the judge
// is not kept: it is asked for again.
//
// A stream is over when it breaks, is silent for [ImporterOptions].Silence, is malformed ([MalformedError], with the place),
// exceeds a bound, is of another process, or when a digest disagrees. It is opened again at once, and then after longer and longer times. If no frontier
// is reached within [ImporterOptions].Grace, scopes that are complete become Stale, with the reason, and what kinds the
// member serves is not known; all is as it was told again at the next frontier. So is what is left of a member
// that its source tells of no longer. One that nobody has told of has no scopes: it is Unknown, and never absent.
//
//	what happens             the importer                                      the exporter
//	connection breaks        resumes; Stale after the grace                    forgets the stream
//	importer is slow         -                                                 tells what is, when it can be written
//	importer does not read   resumes                                           cuts it after Stall
//	exporter is new          is told the state, keeps what is the same         has another epoch
//	log does not reach back  is told the state, keeps what is the same         tells the state in the stream
//	digest disagrees         applies nothing, asks again for the member        recalculates it when it is audited
//	malformed, or too much   Stale after the grace, tries again                -
//	another policy set       has a scope with another projection               tells all of the scope
//	audit differs            asks again for the scope                          tells it to all, if it had missed it
//	more is asked for        holds it once all have told                       tells what has the new keys
//	less is asked for        holds less at once                                tells deletes
//
// # What is held
//
// [Importer.SetInterest] says what is asked for, of each peer one set at a time: the next one once the peer's frontier has the number
// of the last. [Importer.Held] are keys of which all is there: for each member that is shown as it was told, or as Stale and not Unread,
// each record that has one of them, as of its source's last frontier. It grows when all sources of such members have told; one that is
// lost, and a member without a source, are waited for until they are shown as Stale and Unread, and who is telling something that may become a member's until it has. It
// shrinks before less is asked for. A member becomes another source's only by what has all that is held, and a Stale one is shown as it
// was told only once it has. Where a stream breaks while something was asked for, that is asked for again before anything else,
// since some members may have been told of it.
//
// # Audits
//
// In [ImporterOptions].Audit each member is audited once: digests of what the index has are compared with those that the
// exporter calculates from its export, one member at a time, and uses for all importers while nothing changes. Where it
// finds that its own table is not what the export has, a change was not named, and the scope is told again.
//
// # Moving a member
//
// Make before break, in this order. A process that is to judge a member reads it in the role Joining, while it stays in
// the peers' index; when it has read all it takes the role Judge, from which on its own index counts and is exported;
// then it calls [Importer.SetFleet] without the member. A process that is to judge it no longer calls SetFleet with the
// member and its next judge; it goes on reading it in its own index, which counts, until [Importer.Complete] says that the next judge has
// told all of it; then it lets go of it. Other processes only learn of another judge.
//
// # Concurrency
//
// All methods are safe for concurrent use. Run has all goroutines, and has joined them when it returns. No lock is held
// while anything is read, sent or waited for; a member's is while it is written.
//
// # Trade-offs
//
// This is no message bus. Exactness must not rest on delivery, and so needs state, positions and digests on any transport;
// on an ordered stream for each two processes that is all that it needs. In batches of 100 records, 535 bytes each, the same
// over core NATS (embedded, two servers with a route) costs 3.3 µs of CPU and 53 bytes for a record, here 2.5 µs and 47;
// in batches of 5, 15 µs and 143 bytes beside 8.7 µs and 65; a message for each record 25 µs and 419 bytes, since each
// message is compressed by itself. It would make the binary 11 MB larger (package internal/natscompare).
//
// Members are told independently: between two members of one process there is no order but that of their batches. Keys are asked for by
// bucket of their hash, so that some are told that nobody reads. Who asks for everything costs an exporter nothing but its stream; who
// asks for a part has there some 30 bytes for each record that it was told. Of 100,000 pods an importer of 1 % took 6 % of the heap,
// 1.1 % of the bytes and 3 % of the CPU of one of everything, one of 10 % took 16, 11 and 10 % (BenchmarkInterest). A process has one encoder for
// each importer, 0.8 MB with what HTTP/2 has, since each one's window is of what it was told.
package exchange

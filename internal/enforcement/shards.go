package enforcement

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
)

// Shards are the processes that share a fleet: the leader corrects what all of them judge. Options.Identity is this process's
// ID.
type Shards struct {
	Epoch string // of this process, another one after each start; required
	// Fleet returns who judges what, as in intents.ReceiverOptions; required. FleetChanged is called when it returns
	// another one.
	Fleet func() *intents.Fleet
	// Peer returns which process a request to Handler is from, as its connection proves, "" for none. Required.
	Peer func(*http.Request) string
	// Unsettled returns why another process may have the same corrections as this one, "" if none has: keys of views change
	// their owner. nil: none ever has.
	Unsettled func() string
	// Told is what the other processes have told of the members that they judge, and KeyOwner which keys of views are
	// judged here at first. Changed is called after each change of the verdicts, on the Loop's goroutine. Required.
	Told     *aggregate.Index
	KeyOwner policy.KeyOwner
	Changed  func(*policy.Changes)
	// Wants reports whether another process is told of objects that are judged here and have some keys: of others it knows nothing.
	// Required.
	Wants func(process string, k *interest.Keys) bool
	// Subscribe says that Told has only keys that policies read, as far as Loop.SetHeld has said.
	Subscribe bool
	// Known returns once it is known what is judged here, or ctx is done: before, nothing is evaluated. It may wait for who
	// leads. nil: it always is.
	Known func(ctx context.Context)
}

// shards are what a process has for those that it shares the fleet with.
type shards struct {
	Shards

	sender   *intents.Sender
	receiver *intents.Receiver
	facts    *facts.Client
	diffs    *facts.Differences
	handler  http.Handler

	evaluated bool // of the Loop's goroutine: the Sender has been told of members
	was       string

	mu        sync.Mutex
	reports   *hub.ReportsFleet // nil before the fleet is known
	reportsOf *intents.Fleet    // that reports is of
	summaries map[string]facts.Summary
	of        *policy.State // that summaries are of
	at        time.Time
}

// wireShards wires what comes of other processes, and changes the options of a Dispatcher to it.
func (e *Enforcement) wireShards(opts *Options, to *remediate.Options) error {
	o := opts.Shards
	if o.Epoch == "" || o.Fleet == nil || o.Peer == nil || o.Told == nil || o.Changed == nil || o.Wants == nil || opts.Identity == "" {
		return errors.New("enforcement: shards: Epoch, Fleet, Peer, Told, Changed, Wants and Identity are required")
	}
	s := &shards{Shards: *o, diffs: facts.NewDifferences(o.Fleet)}
	e.shards = s
	protected := func(target policy.Ref, annotations map[string]string) string {
		return e.dispatcher.Protected(target, annotations)
	}
	local := facts.Local{
		Held: to.Held, MemberUID: to.MemberUID, MemberAway: to.MemberAway, Health: to.Health, Owner: to.Owner, Summaries: e.summaries, Evidence: e.evidence,
		Resolve: func(claims []enforce.Claim) []enforce.Resolution { return e.corrector.Resolve(claims, o.Wants) },
	}
	if local.MemberAway == nil {
		local.MemberAway = func(string) error { return nil }
	}
	var err error
	if s.sender, err = intents.NewSender(intents.SenderOptions{Self: opts.Identity, Epoch: o.Epoch, Protected: protected}); err != nil {
		return err
	}
	if s.facts, err = facts.NewClient(facts.ClientOptions{Local: local, Fleet: o.Fleet, Lease: to.Lease}); err != nil {
		return err
	}
	if s.receiver, err = intents.NewReceiver(intents.ReceiverOptions{
		Self: s.sender, Actor: actor{e}, Lease: to.Lease, Fleet: o.Fleet, Resolve: s.facts.Resolve, Prefetch: s.facts.Prefetch, OwnersChanged: func() { e.dispatcher.OwnersChanged() }, Logger: opts.Logger,
	}); err != nil {
		return err
	}
	answers, err := facts.NewServer(local, o.Fleet, s.diffs)
	if err != nil {
		return err
	}
	passes, err := relay.NewServer(relay.ServerOptions{
		Fleet: o.Fleet, Clients: to.Clients, Held: local.Held, Leader: e.elector.Holder, Peer: o.Peer, Protected: protected, Logger: opts.Logger,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(intents.Path, s.sender)
	mux.Handle(facts.Path, answers)
	mux.Handle(relay.Path, passes)
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Peer(r) == "" {
			http.Error(w, "only processes of this fleet may ask", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
	to.Clients = &relay.Client{Local: to.Clients, Fleet: o.Fleet}
	to.Held, to.MemberUID, to.MemberAway, to.Away = s.facts.Held, s.facts.MemberUID, s.facts.MemberAway, s.facts.Away
	to.Health, to.Healths, to.Owner, to.Verdicts, to.Incomplete = s.facts.Health, s.facts.Healths, s.facts.Owner, s.facts.Verdicts, s.receiver.Incomplete
	return nil
}

// actor is the Dispatcher, which is made after what drives it.
type actor struct{ *Enforcement }

func (a actor) SetIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, ready bool) error {
	return a.dispatcher.SetIntents(binding, spec, totals, list, ready)
}

func (a actor) UpdateIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, gone []policy.Ref, ready bool) error {
	return a.dispatcher.UpdateIntents(binding, spec, totals, list, gone, ready)
}

func (a actor) ClearIntents(binding string) { a.dispatcher.ClearIntents(binding) }

func (a actor) RemovePolicy(binding string) { a.dispatcher.RemovePolicy(binding) }

func (a actor) Protected(target policy.Ref, annotations map[string]string) string {
	return a.dispatcher.Protected(target, annotations)
}

// Handler serves other processes that share the fleet, below intents.Path, facts.Path and relay.Path; nil unless Options.Shards
// are set.
func (e *Enforcement) Handler() http.Handler {
	if e.shards == nil {
		return nil
	}
	return e.shards.handler
}

// FleetChanged says that Shards.Fleet returns another one.
func (e *Enforcement) FleetChanged() {
	if e.shards != nil {
		e.shards.receiver.FleetChanged()
	}
}

// ownersChanged says that who manages targets may have changed, here.
func (e *Enforcement) ownersChanged() {
	if e.shards != nil {
		e.shards.sender.OwnersChanged()
		return
	}
	e.dispatcher.OwnersChanged()
}

// follow tells the other processes which members the corrections of a State are of, after the Corrector has made them. It is
// called on the Loop's goroutine.
func (s *shards) follow(c *policy.Changes, batch *aggregate.Batch) {
	if c.After == nil {
		return
	}
	unsettled := ""
	if s.Unsettled != nil {
		unsettled = s.Unsettled()
	}
	if s.evaluated && batch != nil && unsettled == s.was && !hasAny(batch.Members()) {
		return
	}
	s.evaluated, s.was = true, unsettled
	s.sender.Evaluated(c.After.Snapshot.Members(), unsettled)
}

// evaluate runs the Loop, once it is known what is judged here.
func (e *Enforcement) evaluate(ctx context.Context) error {
	if e.shards != nil && e.shards.Known != nil {
		e.shards.Known(ctx)
	}
	return e.Loop.Run(ctx)
}

func hasAny[T any](list iter.Seq[T]) bool {
	for range list {
		return true
	}
	return false
}

// summaryAge is how long summaries of one State are used again: what is protected may change without it.
const summaryAge = time.Second

// summaries are the verdicts of this process, nil before there are any.
func (e *Enforcement) summaries() map[string]facts.Summary {
	state, s := e.Loop.State(), e.shards
	if state == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == state && time.Since(s.at) < summaryAge {
		return s.summaries
	}
	out := map[string]facts.Summary{}
	for b := range state.Bindings() {
		health, _ := state.Health(b.Name)
		status := e.corrector.Status(b.Name)
		of := facts.Summary{Counts: map[string]facts.Counts{}, Protected: status.Protected, Synced: state.Synced, Problem: health.Problem(), Remedies: remediesOf(&status)}
		for member, n := range state.Counts(b.Name) {
			of.Counts[member] = facts.CountsOf(n)
		}
		out[b.Name] = of
	}
	s.summaries, s.of, s.at = out, state, time.Now()
	return out
}

// evidence is what this process finds of what rolls out, nil before it has compared anything.
func (e *Enforcement) evidence() *evidence.Said {
	out := &evidence.Said{Policies: e.policies.Evidence(), Commits: e.Sources.Evidence()}
	if out.Policies == nil || out.Commits == nil {
		return nil
	}
	return out
}

// remediesOf returns what a process tells of the corrections of a policy. One that it only observes has none to count.
func remediesOf(s *enforce.EnforcementStatus) facts.Remedies {
	return facts.Remedies{
		Counting: !s.Complete && s.Mode != policy.Observe, OverCeiling: s.OverCeiling, OverCeilingReason: s.OverCeilingReason,
		Contradicting: s.Contradicting, Contradiction: s.Contradiction,
	}
}

// fleetVerdicts returns the verdicts of a policy on the whole fleet.
func (s *shards) fleetVerdicts(name string) (hub.FleetVerdicts, error) {
	sum, err := s.facts.Summary(name)
	if err != nil {
		return hub.FleetVerdicts{}, err
	}
	out := hub.FleetVerdicts{
		Counts: map[string]policy.Counts{}, Protected: sum.Protected, Synced: sum.Synced, Problem: sum.Problem,
		Counting: sum.Counting, OverCeiling: sum.OverCeiling, OverCeilingReason: sum.OverCeilingReason, Contradicting: sum.Contradicting, Contradiction: sum.Contradiction,
	}
	for member, n := range sum.Counts {
		out.Counts[member] = n.Policy()
	}
	return out, nil
}

// reportsFleet returns who writes the reports of members, nil while it is not known.
func (s *shards) reportsFleet() *hub.ReportsFleet {
	fleet := s.Fleet()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fleet == nil || fleet == s.reportsOf {
		return s.reports
	}
	f := &hub.ReportsFleet{Self: fleet.Self, Processes: slices.Collect(maps.Keys(fleet.Peers)), Judges: make(map[string]string, len(fleet.Members))}
	f.Processes = append(append(f.Processes, fleet.Processes...), fleet.Self)
	for name, m := range fleet.Members {
		f.Judges[name] = m.Judge
	}
	s.reports, s.reportsOf = f, fleet
	return f
}

// diff says what a commit would change on the fleet.
func (e *Enforcement) diff(ctx context.Context, c policysource.Candidate) (policysource.Difference, error) {
	own, err := e.policies.Diff(ctx, c)
	if err != nil || e.shards == nil {
		return own, err
	}
	return e.shards.diffs.Sum(c, own)
}

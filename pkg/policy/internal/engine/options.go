package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Options configure an Engine.
type Options struct {
	Set      *module.Set // required
	Bindings []binding.Binding
	Limits   Limits
	// Parallelism is how many goroutines evaluate while Run runs, including the
	// caller's. 0 means GOMAXPROCS.
	Parallelism int
	// CPU returns the CPU time that the calling thread has used, which bounds
	// evaluations. nil means that of the operating system.
	CPU func() time.Duration
	// Clock is the time by which instants pass, quarantines end and violations are first seen. nil means time.Now.
	Clock func() time.Time
	// AsOf is the time as of which everything is evaluated, for an engine whose time stands still. Zero means the
	// present time, by Clock.
	AsOf time.Time
	// InventoryMember is the member whose objects are data.inventory, and whose Namespaces those of the subjects of
	// templates are, whichever member these are in. It is for subjects that their cluster does not have yet, which
	// an inventory must not hold. Empty: the subject's own, or the entire fleet where the constraint says so.
	InventoryMember string
	// Exports says that states have an Export, which costs a little memory and time of each change.
	Exports bool
	// KeyOwner says which keys of views are subjects, until Engine.SetKeyOwner does. Zero: all.
	KeyOwner fleetview.KeyOwner
	// Generated says that all subjects are what expansion of Gatekeeper makes, which constraints may select by source.
	Generated bool
	// Manifests says that constraints match subjects as "gator test" does: what is in no namespace is in one without
	// a name, and what is in one whose Namespace is not there violates each constraint that has to know its labels.
	Manifests bool
	// Memory is what an earlier process knew of its verdicts; nil for nothing.
	Memory Memory
	// Interpreted says that OPA interprets all policies, and nothing is compiled.
	Interpreted bool
	// Tracer sees what evaluations do, on all goroutines that evaluate; nil: nobody does.
	Tracer topdown.QueryTracer
}

// Memory is what an earlier process knew. It is called by the engine's goroutine.
type Memory interface {
	// Recall returns the violations of a subject that are to be found again, with when they were first seen. It
	// is asked when a binding evaluates the subject for the first time, and again if that call fails.
	Recall(binding string, s verdict.Subject) []state.Seen
	// Quarantines returns the quarantines of a binding or view whose rules have a digest, and forgets them.
	Quarantines(of, digest string) []KeptQuarantine
}

// Limits bound what policies may take. 0 means the default.
type Limits struct {
	Evaluation   time.Duration // CPU time of one evaluation: 100 ms
	Overruns     int           // evaluations that use that time without a result until the binding is quarantined for the member: 10
	Slow         time.Duration // total CPU time of the evaluations of one binding for one member that each use a tenth of Evaluation or more, until it is quarantined; it decays by what a quarter of the processors can do: 20 s
	Read         int64         // bytes of JSON that one evaluation reads of data.fleet: 64 MiB
	Result       int           // bytes of the violations of one evaluation: 1 MiB
	Violations   int           // of one evaluation: 1000
	Contribution int           // bytes that one object contributes to one view: 256 KiB
	View         int64         // bytes that one view holds: 512 MiB; beyond, only keys are held, for as much again
	Binding      int64         // bytes of the violations of one binding and of what its evaluations read, in total: 512 MiB
}

func withDefault[T int | int64 | time.Duration](x, def T) (T, error) {
	if x < 0 {
		return 0, fmt.Errorf("limit %v is negative", x)
	}
	if x == 0 {
		return def, nil
	}
	return x, nil
}

func (l *Limits) setDefaults() error {
	var errs [9]error
	l.Evaluation, errs[0] = withDefault(l.Evaluation, 100*time.Millisecond)
	l.Overruns, errs[1] = withDefault(l.Overruns, 10)
	l.Read, errs[2] = withDefault(l.Read, 64<<20)
	l.Result, errs[3] = withDefault(l.Result, 1<<20)
	l.Violations, errs[4] = withDefault(l.Violations, 1000)
	l.Contribution, errs[5] = withDefault(l.Contribution, 256<<10)
	l.View, errs[6] = withDefault(l.View, 512<<20)
	l.Binding, errs[7] = withDefault(l.Binding, 512<<20)
	l.Slow, errs[8] = withDefault(l.Slow, 20*time.Second)
	return errors.Join(errs[:]...)
}

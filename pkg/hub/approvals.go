package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/admission"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/hub/internal/approval"
	"federator.dev/federator/pkg/hub/internal/people"
	"federator.dev/federator/pkg/hub/internal/statuses"
	"federator.dev/federator/pkg/remediate"
)

const (
	approvalsInterval = 100 * time.Millisecond // between two passes
	unknownGrace      = 10 * time.Second       // until an Approval of what is not seen is ignored
)

// ApprovalsDispatcher is what Approvals need of a remediate.Dispatcher.
type ApprovalsDispatcher interface {
	Status(policy string) (remediate.Status, bool)
	SetApprovals(policy string, approved map[types.UID]remediate.Approved)
	AcknowledgeUntil(policy, id, by string, until time.Time) error
}

// WideCommit is a commit that changes more verdicts than spec.maxDiff of its PolicySource.
type WideCommit struct {
	Source, Hash string
	Signer       string       // the owner of the trusted key that signed it, "" if none has
	Commits      lineage.Line // that lead to it
	Active       string       // the commit that it would replace, "" if none is active
	Since        time.Time    // of the PolicySource
	Required     []v1alpha1.ApprovalRequirement
}

// RollbackPlan is the Plan of a Rollback that waits for Approvals, or is carried out.
type RollbackPlan struct {
	Policy  string
	Hash    v1alpha1.Digest
	By      v1alpha1.UserName // who wants it, and does not approve it
	Since   time.Time         // Approvals that are older are not of it
	Written int               // targets
}

// ApprovalsOptions configure Approvals. All but Commits, Signers, OnCommits, Rollbacks,
// OnRollbacks, Shadows, OnChange and Logger are required.
type ApprovalsOptions struct {
	Config     *rest.Config // of the hub
	Namespace  string       // federator's: of the Lease that says since when names are proven
	Dispatcher ApprovalsDispatcher
	// Required returns the policies that require approval, or did so, with what they require
	// now; false while that is not known.
	Required func() (map[string][]v1alpha1.ApprovalRequirement, bool)
	// Commits returns the commits of PolicySources that wait for approval.
	Commits func() []WideCommit
	// Rollbacks returns the Plans of Rollbacks that may need approval.
	Rollbacks func() []RollbackPlan
	// Shadows returns the versions of policies whose shadow people may end.
	Shadows func() []ShadowVersion
	// Signers are the users who own the keys that sign commits, as in FleetPoliciesOptions.
	Signers   map[string]string
	OnCommits func() // what Commit returns has changed; it must not block
	// OnRollbacks is called when what Rollback returns has changed; it must not block.
	OnRollbacks func()
	IsLeader    func() bool  // whether this process decides
	OnChange    func()       // what is proven may have changed; it must not block
	Logger      *slog.Logger // nil: none
}

// Approvals decide what the Approvals on the hub let pass, tell the Dispatcher, and write
// their statuses. What the hub does not prove, or does not answer, lets nothing pass.
type Approvals struct {
	opts      ApprovalsOptions
	client    *client
	informer  cache.SharedIndexInformer
	proofs    *people.Proofs
	reviews   *people.Reviews
	triggered trigger.Trigger
	statuses  *statuses.Writer[*v1alpha1.Approval]

	mu       sync.Mutex
	changes  uint64                        // of all Approvals
	versions map[string]uint64             // changes when an Approval of a subject changed last, by its key
	seen     map[types.UID]time.Time       // when Approvals were seen first
	answers  uint64                        // how often RBAC or what is proven has changed
	commits  map[string]remediate.Approved // by key of the subject
	// rollbacks are by key of the subject; one that is not there is not known.
	rollbacks map[string]remediate.Approved
	shadows   map[string]shadowCount // of versions, by key of the subject

	// The following fields are used by Run only.
	counts   map[string]*subjectCount                    // by key of the subject
	used     map[string]int                              // targets written, by key of the subject
	told     map[string]map[types.UID]remediate.Approved // what the Dispatcher was told, by policy and Plan
	recount  bool                                        // counts have changed since statuses were reviewed
	reviewed uint64                                      // changes when they were
	reviewAt time.Time                                   // when they are again, without a change
}

// NewApprovals returns Approvals; nothing happens before Run.
func NewApprovals(opts ApprovalsOptions) (*Approvals, error) {
	if opts.Config == nil || opts.Namespace == "" || opts.Dispatcher == nil || opts.Required == nil || opts.IsLeader == nil {
		return nil, errors.New("Approvals: Config, Namespace, Dispatcher, Required and IsLeader are required")
	}
	if opts.Commits == nil {
		opts.Commits = func() []WideCommit { return nil }
	}
	if opts.OnCommits == nil {
		opts.OnCommits = func() {}
	}
	if opts.Rollbacks == nil {
		opts.Rollbacks = func() []RollbackPlan { return nil }
	}
	if opts.Shadows == nil {
		opts.Shadows = func() []ShadowVersion { return nil }
	}
	if opts.OnRollbacks == nil {
		opts.OnRollbacks = func() {}
	}
	if opts.OnChange == nil {
		opts.OnChange = func() {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	a := &Approvals{
		opts: opts, client: c, triggered: trigger.New(), versions: map[string]uint64{}, seen: map[types.UID]time.Time{},
		counts: map[string]*subjectCount{}, told: map[string]map[types.UID]remediate.Approved{},
	}
	a.statuses = statuses.NewWriter(a.writeStatus)
	a.proofs = people.NewProofs(people.ProofsOptions{Check: admission.NewKeeper(typed, opts.Namespace).Check, IsLeader: opts.IsLeader, OnChange: a.answered})
	a.reviews = people.NewReviews(typed.AuthorizationV1().SubjectAccessReviews(), a.answered, opts.Logger)
	a.informer = c.informer(v1alpha1.Approvals, &v1alpha1.ApprovalList{}, &v1alpha1.Approval{})
	if err := a.informer.AddIndexers(cache.Indexers{bySubject: indexApproval(approval.SubjectKey), byPolicy: indexApproval(policyOf)}); err != nil {
		return nil, err
	}
	_, err = a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { a.changed(nil, o) }, UpdateFunc: a.changed, DeleteFunc: func(o any) { a.changed(o, nil) },
	})
	return a, err
}

// Indexes of Approvals.
const (
	bySubject = "subject"
	byPolicy  = "policy"
)

func indexApproval(key func(*v1alpha1.Approval) string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		if a, ok := o.(*v1alpha1.Approval); ok && key(a) != "" {
			return []string{key(a)}, nil
		}
		return nil, nil
	}
}

func policyOf(a *v1alpha1.Approval) string { return string(a.Spec.FleetPolicy) }

// changed notes that an Approval has come, has changed or has gone.
func (a *Approvals) changed(was, now any) {
	if gone, ok := was.(cache.DeletedFinalStateUnknown); ok {
		was = gone.Obj
	}
	before, _ := was.(*v1alpha1.Approval)
	after, _ := now.(*v1alpha1.Approval)
	a.mu.Lock()
	a.changes++
	fresh := false
	if before != nil && (after == nil || after.UID != before.UID) {
		a.versions[approval.SubjectKey(before)] = a.changes
		delete(a.seen, before.UID)
	}
	if after != nil {
		if _, known := a.seen[after.UID]; !known {
			a.seen[after.UID], fresh = time.Now(), true
		}
		if fresh || after.DeletionTimestamp != nil { // else only its status has changed
			a.versions[approval.SubjectKey(after)] = a.changes
		}
	}
	a.mu.Unlock()
	if fresh {
		a.proofs.Request() // nothing was proven since it was created
	}
	a.triggered.Fire()
}

// answered notes that RBAC or what is proven has changed.
func (a *Approvals) answered() {
	a.mu.Lock()
	a.answers++
	a.mu.Unlock()
	a.triggered.Fire()
	a.opts.OnChange()
}

// Unproven returns why it is not proven who creates Approvals, "" if it is.
func (a *Approvals) Unproven() string { return proofOf(a.proofs.Answer(time.Now())).Why }

// AuthorsSince returns since when the hub proves who changes FleetPolicies, zero if it does
// not, and when it was asked, zero if that is not known.
func (a *Approvals) AuthorsSince() (since, asked time.Time) {
	answer := a.proofs.Answer(time.Now())
	return answer.Authors.Since, answer.Asked
}

// RollbacksSince returns since when the hub proves who creates Rollbacks, and that they may:
// zero and why it does not. It was asked at a time; zero if that is not known.
func (a *Approvals) RollbacksSince() (since, asked time.Time, why string) {
	answer := a.proofs.Answer(time.Now())
	if answer.Asked.IsZero() {
		return time.Time{}, time.Time{}, answer.Why
	}
	return answer.Rollbacks.Since, answer.Asked, answer.Rollbacks.Why
}

// Request has the hub asked soon what it proves. It does not block.
func (a *Approvals) Request() { a.proofs.Request() }

// Trigger has Run look at the Dispatcher soon. It does not block.
func (a *Approvals) Trigger() { a.triggered.Fire() }

func proofOf(a people.Answer) approval.Proof {
	if a.Asked.IsZero() {
		return approval.Proof{Why: a.Why}
	}
	return approval.Proof{Since: a.Approvals.Since, Why: a.Approvals.Why}
}

// Run watches the hub until the context ends, and returns when all goroutines that it
// started have ended.
func (a *Approvals) Run(ctx context.Context) error {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer running.Wait()
	defer cancel()
	running.Go(func() { a.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), a.informer.HasSynced) {
		return context.Cause(ctx)
	}
	running.Go(func() { a.proofs.Run(ctx) })
	running.Go(func() { a.reviews.Run(ctx) })
	running.Go(func() { a.statuses.Run(ctx) })
	tick, pause := time.NewTicker(statusInterval), time.NewTimer(0)
	defer tick.Stop()
	defer pause.Stop()
	for {
		if a.opts.IsLeader() {
			a.pass(time.Now())
		} else {
			a.forget()
		}
		pause.Reset(approvalsInterval)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.triggered:
		case <-tick.C:
		}
	}
}

// forget forgets what this process has decided: it leads no more.
func (a *Approvals) forget() {
	clear(a.counts)
	clear(a.told)
	a.mu.Lock()
	a.commits, a.rollbacks, a.shadows = nil, nil, nil
	a.mu.Unlock()
}

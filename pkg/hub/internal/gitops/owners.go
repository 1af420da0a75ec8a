package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
)

// Owner is a trusted object that lists a target.
type Owner struct {
	Ref              aggregate.Ref
	Repository, Path string // where the target's content is from; as the object says
}

const maxText = 256 // bytes of what an object says

// String names the object, its repository and path.
func (o *Owner) String() string {
	tool := "Flux"
	if o.Ref.Kind == Application {
		tool = "Argo CD"
	}
	kind, _ := o.Ref.Kind.Split()
	text := fmt.Sprintf("%s %s %s/%s of member %s", tool, kind, o.Ref.Namespace, o.Ref.Name, o.Ref.Member)
	if o.Repository != "" {
		text += ", repository " + clip.Line(o.Repository, maxText)
	}
	if o.Path != "" {
		text += ", path " + clip.Line(o.Path, maxText)
	}
	return text
}

// Answer is what is known of a target. The zero Answer is of one that nobody owns.
type Answer struct {
	Owner   *Owner // that lists it
	Unknown string // why it is not known; "" when it is
}

// Options configure Owners. Index is required.
type Options struct {
	Index *aggregate.Index
	Trust []Trust
	// ServerOf returns the URL of a member's API server, "" unless it is known and no other
	// member's. nil: none is known.
	ServerOf func(member string) string
	// Changed is called when owners may have changed, at most once a second. It may be nil.
	Changed func()
}

// Owners knows what trusted objects own. Its methods are safe for concurrent use.
type Owners struct {
	opts  Options
	kinds map[aggregate.Kind]bool // trusted ones

	mu         sync.Mutex
	cursor     *aggregate.Cursor
	snapshot   *aggregate.Snapshot
	version    uint64                   // of what follows
	claims     map[aggregate.Ref]*claim // by trusted object
	owners     map[target][]*claim      // of each target, by their refs
	everywhere string                   // why nothing is known of any member's objects
	incomplete map[string]string        // why nothing is known of a member's, by member
}

// New returns Owners, or what is wrong with the options.
func New(o Options) (*Owners, error) {
	if o.Index == nil {
		return nil, errors.New("gitops: Index is required")
	}
	x := &Owners{
		opts: o, kinds: map[aggregate.Kind]bool{}, cursor: o.Index.Cursor(nil),
		claims: map[aggregate.Ref]*claim{}, owners: map[target][]*claim{},
	}
	for i := range o.Trust {
		if err := o.Trust[i].Validate(); err != nil {
			return nil, fmt.Errorf("gitops: %w", err)
		}
		x.kinds[o.Trust[i].Kind] = true
	}
	return x, nil
}

// Kinds are the kinds that must be followed.
func (x *Owners) Kinds() []aggregate.Kind {
	var out []aggregate.Kind
	for kind := range x.kinds {
		out = append(out, kind)
	}
	if x.kinds[Kustomization] || x.kinds[HelmRelease] {
		out = append(out, sourceKinds...)
	}
	slices.Sort(out)
	return out
}

// Of returns who owns a target, as of the index now.
func (x *Owners) Of(ref aggregate.Ref) Answer {
	if len(x.kinds) == 0 {
		return Answer{}
	}
	server := ""
	if x.opts.ServerOf != nil {
		server = x.opts.ServerOf(ref.Member)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.catchUpLocked()
	at := target{member: ref.Member, kind: ref.Kind, namespace: ref.Namespace, name: ref.Name}
	found := x.owners[at]
	if len(found) == 0 && server != "" {
		at.member, at.server = "", normalize(server)
		found = x.owners[at]
	}
	if len(found) > 0 { // which counts whatever is not known
		owner := found[0].owner
		if owner.Repository == "" {
			owner.Repository = x.repositoryLocked(found[0].source)
		}
		return Answer{Owner: &owner}
	}
	if x.everywhere != "" {
		return Answer{Unknown: x.everywhere}
	}
	return Answer{Unknown: x.incomplete[ref.Member]}
}

// Unknown returns why it is not known what is owned in a member, "" when it is.
func (x *Owners) Unknown(member string) string {
	if len(x.kinds) == 0 {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.catchUpLocked()
	if x.everywhere != "" {
		return x.everywhere
	}
	return x.incomplete[member]
}

func (x *Owners) repositoryLocked(source aggregate.Ref) string {
	o, ok := x.snapshot.Get(source)
	if !ok {
		return strings.Trim(string(source.Kind)+" "+source.Namespace+"/"+source.Name, " /")
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		return ""
	}
	return sourceURL(body)
}

// Run reads changes as they come, so that answers need not, and reports them, until the
// context ends.
func (x *Owners) Run(ctx context.Context) error {
	if len(x.kinds) == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	reported := uint64(0)
	for {
		x.mu.Lock()
		x.catchUpLocked()
		version, snapshot := x.version, x.snapshot
		x.mu.Unlock()
		if version != reported && x.opts.Changed != nil {
			reported = version
			x.opts.Changed()
		}
		if err := sleep.For(ctx, changePeriod); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.opts.Index.Newer(snapshot):
		}
	}
}

const changePeriod = time.Second // between reports

// catchUpLocked reads what has changed in the index. It waits for nobody.
func (x *Owners) catchUpLocked() {
	first := x.snapshot == nil
	batch, some := x.cursor.Poll()
	if !some && !first {
		return
	}
	if !some {
		x.snapshot = x.opts.Index.Snapshot()
		x.readScopesLocked()
		return
	}
	x.snapshot = batch.After
	for d := range batch.DeltasOf(x.kinds) {
		x.applyLocked(d)
	}
	scopes := first
	for range batch.Members() {
		scopes = true
		break
	}
	if !scopes {
		for d := range batch.Scopes() {
			if scopes = x.kinds[d.After.Kind]; scopes {
				break
			}
		}
	}
	if scopes {
		x.readScopesLocked()
	}
}

// applyLocked takes the change of an object of a trusted kind into account.
func (x *Owners) applyLocked(d aggregate.Delta) {
	if old := x.claims[d.Ref]; old != nil {
		delete(x.claims, d.Ref)
		for _, t := range old.targets {
			left := slices.DeleteFunc(x.owners[t], func(c *claim) bool { return c == old })
			if x.owners[t] = left; len(left) == 0 {
				delete(x.owners, t)
			}
		}
		x.version++
	}
	if d.After.IsZero() || !slices.ContainsFunc(x.opts.Trust, func(t Trust) bool { return t.trusts(d.Ref) }) {
		return
	}
	body, err := d.After.AppendBody(nil)
	if err != nil {
		return
	}
	c := parse(d.Ref, body)
	x.claims[d.Ref] = &c
	for _, t := range c.targets {
		if n := x.owners[t]; len(n) > 0 && n[len(n)-1] == &c {
			continue // listed twice
		}
		x.owners[t] = append(x.owners[t], &c)
		slices.SortFunc(x.owners[t], func(a, b *claim) int { return strings.Compare(a.owner.Ref.String(), b.owner.Ref.String()) })
	}
	x.version++
}

// readScopesLocked finds the scopes of trusted objects that are incomplete. What an Application
// owns may be in any member, what Flux does in its own.
func (x *Owners) readScopesLocked() {
	everywhere, incomplete := "", map[string]string{}
	note := func(t *Trust, member, why string) {
		text := fmt.Sprintf("it is not known what GitOps manages: %s in member %s: %s", t.Kind, member, why)
		if t.Kind != Application {
			incomplete[member] = text
		} else if everywhere == "" {
			everywhere = text
		}
	}
	for i := range x.opts.Trust {
		t := &x.opts.Trust[i]
		for m := range x.snapshot.Members() {
			if !matchAny(t.Members, m.Name) {
				continue
			}
			if info, ok := x.snapshot.Scope(m.Name, t.Kind); !ok || !info.Status.State.Complete() {
				note(t, m.Name, info.Status.State.String())
			}
		}
		for _, name := range t.Members {
			if _, ok := x.snapshot.Member(name); !ok && !strings.Contains(name, "*") {
				note(t, name, "there is no such member")
			}
		}
	}
	x.everywhere, x.incomplete = everywhere, incomplete
	x.version++
}

package policyquery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Preview serves POST /query/v1/preview: how other policies would change what Violations shows to the
// caller, on the fleet as it is. Evaluating what somebody sends takes a processor for minutes, so that callers
// need a grant of their own: verb preview on policysources.federator.dev of the hub. It evaluates bindings
// whose reads the caller may read, and subjects that the caller may read, and nothing else: no count, error,
// cost, end or time of an answer depends on the rest.
//
// One preview runs at a time; while candidates are loaded, which nothing interrupts, two and one of a user. It is safe for concurrent use, and must not be copied after first use.
type Preview struct {
	Kinds Kinds
	Loop  *enforce.Loop // of the policy engine
	// Describing are the resources on the hub that describe members, such as
	// "clusters.cluster.x-k8s.io", as Caller.HubAllows takes them.
	Describing []string
	// MaxBytes bounds what a preview holds, MaxTime how long it takes; 0 means 64 MiB and 5 minutes.
	MaxBytes int64
	MaxTime  time.Duration

	mu      sync.Mutex
	running *previewer      // nil: none
	loading map[string]bool // users whose candidates are loaded
}

// previewer is who has begun a preview.
type previewer struct {
	user  string
	since time.Time
}

// maxLoading is how many candidates are loaded at a time.
const maxLoading = 2

// Bounds of a request and of an answer.
const (
	maxCandidate     = 8 << 20 // bytes of a request
	maxCandidateFile = 2000
	previewTime      = 5 * time.Minute
	previewBytes     = 64 << 20
	answerTime       = 30 * time.Second // for writing the answer
)

// PreviewVerb is the verb that callers need on policysources.federator.dev of the hub.
const PreviewVerb = "preview"

// PreviewCandidate is the request: policies to compare with the active ones.
type PreviewCandidate struct {
	// Source is the PolicySource whose files these are: they replace all that it has. Without it they replace
	// packages of the same names, and no package goes.
	Source string        `json:"source,omitempty"`
	Files  []PreviewFile `json:"files"`
	// Bindings replace the active ones of the same names, and are added to the others.
	Bindings []policy.Binding `json:"bindings,omitempty"`
}

// PreviewFile is one file of Rego, or of policies that are Kubernetes objects. Tests are not read.
type PreviewFile struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

var (
	_ queryapi.SharedPoster = &Preview{}
	_ queryapi.Describer    = &Preview{}
)

// MaxBody implements queryapi.Poster.
func (*Preview) MaxBody() int64 { return maxCandidate }

// Serve implements queryapi.Query.
func (*Preview) Serve(w http.ResponseWriter, _ *http.Request, _ queryapi.Caller) error {
	w.Header().Set("Allow", http.MethodPost)
	return apierrors.NewBadRequest("a preview is a POST request, of the candidate's files: federator policy preview makes one")
}

// Describe implements queryapi.Describer.
func (*Preview) Describe() queryapi.Operation {
	return queryapi.Operation{
		Description: "With POST, judge other policies on the fleet as it is, beside the active ones: the verdicts that would appear, vanish or " +
			"change, the corrections that would be called for, and what evaluating takes, as far as the caller may read the objects. " +
			"It requires the verb preview on policysources.federator.dev of the hub. One preview runs at a time. " +
			"GET is refused.",
		Response: PreviewReport{},
	}
}

// Post implements queryapi.Poster.
func (q *Preview) Post(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	if err := mayPreview(r.Context(), caller); err != nil {
		return err
	}
	candidate, err := readCandidate(r.Body)
	if err == nil {
		err = queryapi.ReadDone(w)
	}
	if err != nil {
		return err
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	report, err := q.run(r.Context(), state, candidate, caller)
	if err != nil {
		return err
	}
	return report.write(w)
}

// mayPreview refuses a caller who may make no previews.
func mayPreview(ctx context.Context, caller queryapi.Caller) error {
	may, err := caller.HubAllows(ctx, PreviewVerb, string(HubPolicySources))
	if err != nil || may {
		return err
	}
	return apierrors.NewForbidden(previewResource, "", errors.New("previews require the verb "+PreviewVerb+" on policysources.federator.dev of the hub"))
}

// run makes the preview of a candidate beside a state, when it is its turn.
func (q *Preview) run(ctx context.Context, state *policy.State, c *PreviewCandidate, caller queryapi.Caller) (*PreviewReport, error) {
	user := caller.User().GetName()
	loaded, err := q.load(ctx, state, c, user)
	if err != nil {
		return nil, err
	}
	end, err := q.begin(user)
	if err != nil {
		return nil, err
	}
	defer end()
	return q.preview(ctx, loaded, caller)
}

// ServeShared implements queryapi.Sharer.
func (q *Preview) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, _ queryapi.SharedFleet) error {
	return q.Serve(w, r, caller)
}

// PostShared implements queryapi.SharedPoster: each process judges the candidate on the subjects that it judges, beside
// its own verdicts. What the candidate reads of others' members, and they do not tell, makes verdicts Unknown.
func (q *Preview) PostShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	if err := mayPreview(r.Context(), caller); err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return candidateError(err)
	}
	if err := queryapi.ReadDone(w); err != nil {
		return err
	}
	if err := q.check(r.Context(), body, caller); err != nil {
		return err
	}
	var reports []*PreviewReport
	parts, err := fleet.Pull(r.URL.Query(), body, func(item []byte) error {
		one := &PreviewReport{}
		reports = append(reports, one)
		return json.Unmarshal(item, one)
	})
	if err != nil {
		return err
	}
	absent, _, err := caller.VisibleIn(r.Context(), parts.Absent)
	if err != nil {
		return err
	}
	report := mergePreviews(reports)
	report.Revision = parts.Revision
	report.miss(absent)
	return report.write(w)
}

// check refuses a candidate that cannot be loaded before others are asked: they would go on loading it after the caller was told,
// and say that they do when it comes back with a better one.
func (q *Preview) check(ctx context.Context, body []byte, caller queryapi.Caller) error {
	candidate, err := readCandidate(bytes.NewReader(body))
	if err != nil {
		return err
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	_, err = q.load(ctx, state, candidate, caller.User().GetName())
	return err
}

// ServePart implements queryapi.PartServer.
func (q *Preview) ServePart(r *http.Request, caller queryapi.Caller, to *queryapi.PartWriter) error {
	if r.Method != http.MethodPost {
		return apierrors.NewBadRequest("a preview is a POST request")
	}
	if err := mayPreview(r.Context(), caller); err != nil {
		return err
	}
	candidate, err := readCandidate(r.Body)
	if err == nil {
		err = to.ReadDone()
	}
	if err != nil {
		return err
	}
	state := q.Loop.State()
	if state == nil {
		return errNotEvaluated
	}
	to.OnlyJudged()
	if _, err := to.Begin(state.Snapshot); err != nil { // what follows takes a while
		return err
	}
	report, err := q.run(r.Context(), state, candidate, caller)
	if err != nil {
		return err
	}
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return to.Item(text)
}

// begin makes a preview the one that runs. The error is a 429 that says nothing of another's.
func (q *Preview) begin(user string) (end func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.busy(user); err != nil {
		return nil, err
	}
	q.running = &previewer{user, time.Now()}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.running = nil
	}, nil
}

// busy returns the error of a preview while one runs. The caller holds q.mu.
func (q *Preview) busy(user string) error {
	switch is := q.running; {
	case is == nil:
		return nil
	case is.user == user:
		return tryLater("another preview of yours has been running since " + is.since.UTC().Format(time.RFC3339) + ", and one runs at a time")
	}
	return tryLater("another preview runs, and one runs at a time")
}

func tryLater(why string) error {
	return apierrors.NewTooManyRequests(why+": please try again later", 10)
}

// beginLoading lets a candidate be loaded, unless its preview could not run.
func (q *Preview) beginLoading(user string) (end func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.busy(user); err != nil {
		return nil, err
	}
	switch {
	case q.loading[user]:
		return nil, tryLater("another preview of yours is being loaded")
	case len(q.loading) >= maxLoading:
		return nil, tryLater("other previews are being loaded")
	case q.loading == nil:
		q.loading = map[string]bool{}
	}
	q.loading[user] = true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.loading, user)
	}, nil
}

// load loads a candidate, before it is its turn: that takes a while, whether the client still waits or not.
func (q *Preview) load(ctx context.Context, state *policy.State, c *PreviewCandidate, user string) (*loadedCandidate, error) {
	end, err := q.beginLoading(user)
	if err != nil {
		return nil, err
	}
	defer end()
	set, bindings, err := candidateOf(state, c)
	if err != nil {
		return nil, err
	}
	p, err := q.Loop.NewPreview(state, set, bindings)
	if err != nil {
		return nil, apierrors.NewBadRequest(clip.Text(err.Error(), maxProblems))
	}
	return &loadedCandidate{state, p}, context.Cause(ctx) // the client may be gone
}

// loadedCandidate is a candidate that can be evaluated beside a state.
type loadedCandidate struct {
	state   *policy.State
	preview *policy.Preview
}

func readCandidate(from io.Reader) (*PreviewCandidate, error) {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	c := &PreviewCandidate{}
	if err := d.Decode(c); err != nil {
		return nil, candidateError(err)
	}
	if len(c.Files) > maxCandidateFile {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the candidate has %d files, more than %d", len(c.Files), maxCandidateFile))
	}
	return c, nil
}

// candidateError is the response for a request that cannot be read.
func candidateError(err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxCandidate))
	}
	return apierrors.NewBadRequest("the candidate is not understood: " + clip.Line(err.Error(), 500))
}

// preview evaluates a candidate.
func (q *Preview) preview(ctx context.Context, c *loadedCandidate, caller queryapi.Caller) (*PreviewReport, error) {
	state, p := c.state, c.preview
	reader, err := newStateReader(ctx, caller, q.Kinds, state)
	if err != nil {
		return nil, err
	}
	v := &previewing{
		before: readScope{state, reader}, after: readScope{p.Candidate(), reader}, budget: q.MaxBytes, describing: q.Describing,
		readable: map[string]bool{}, wasReadable: map[string]bool{}, policies: map[string]*PreviewPolicy{}, groups: map[previewGroup]*PreviewGroup{},
		corrections: map[previewCorrection]*PreviewCorrection{}, sampled: map[string]int{},
	}
	if v.budget == 0 {
		v.budget = previewBytes
	}
	if err := v.chooseBindings(ctx, caller); err != nil {
		return nil, err
	}
	report, err := v.evaluate(ctx, q, p)
	if err != nil {
		return nil, err
	}
	return report, v.sameGrants(ctx, caller, q.Kinds)
}

// maxProblems bounds the text of what is wrong with a candidate.
const maxProblems = 16 << 10

// candidateOf returns the policies and bindings that would be active.
func candidateOf(s *policy.State, c *PreviewCandidate) (*policy.Set, []policy.Binding, error) {
	src := policy.Source{Name: c.Source}
	for _, f := range c.Files {
		src.Files = append(src.Files, policy.File{Path: f.Path, Data: []byte(f.Text)})
	}
	set, err := policy.Load(policy.Replace(s.Set(), src), policy.LoadOptions{})
	if err != nil {
		return nil, nil, apierrors.NewBadRequest("the candidate cannot be loaded:\n" + clip.Text(err.Error(), maxProblems))
	}
	set = besideOthers(set, s.Set(), src)
	bindings := slices.Clone(c.Bindings)
	for b := range s.Bindings() {
		b.Version, b.Package, b.Next = "", packageIn(set, s.Set(), b.Package), nextIn(set, s.Set(), b.Next)
		known := slices.ContainsFunc(c.Bindings, func(x policy.Binding) bool { return x.Name == b.Name })
		if !known && set.Package(b.Package) != nil && !followsConstraint(set, b) {
			bindings = append(bindings, b)
		}
	}
	more, _ := policy.DefaultBindings(set, bindings) // those without need parameters
	return set, append(bindings, more...), nil
}

// besideOthers returns a set with what rolls out of other sources beside it, as it is beside the active one: what is
// in effect of them stays so. The candidate takes the place of what rolls out of its own source.
func besideOthers(set, active *policy.Set, src policy.Source) *policy.Set {
	var others []policy.Candidate
	for _, c := range active.Candidates() {
		if c.Source == src.Name && src.Name != "" {
			continue
		}
		if with, err := policy.Load(policy.Replace(c.Set, src), policy.LoadOptions{}); err == nil { // else it would not go on rolling out
			others = append(others, policy.Candidate{Source: c.Source, Set: with})
		}
	}
	return policy.Beside(set, others)
}

// packageIn returns the name that a package of the active set has in another one: a version of a candidate that is not
// beside that is the package itself.
func packageIn(set, active *policy.Set, name string) string {
	p := active.Package(name)
	if p == nil || p.VersionOf() == "" {
		return name
	}
	return cmp.Or(set.Candidate(p.VersionOf()), p.VersionOf())
}

// nextIn returns the next version of a binding of the active set, as it is in another one; nil where that has none.
func nextIn(set, active *policy.Set, n *policy.Next) *policy.Next {
	if n == nil {
		return nil
	}
	out := *n
	out.Binding.Version, out.Binding.Package = "", packageIn(set, active, n.Binding.Package)
	p, was := set.Package(out.Binding.Package), active.Package(n.Binding.Package)
	if p == nil || was != nil && was.VersionOf() != "" && p.VersionOf() == "" { // the candidate takes its place
		return nil
	}
	return &out
}

// followsConstraint reports whether a binding is as the candidate's constraint says, or goes with it.
func followsConstraint(set *policy.Set, b policy.Binding) bool {
	return b.Constraint != "" && (b.Name == b.Constraint || set.Constraint(b.Constraint) == nil)
}

// sameGrants returns an error when the caller may no longer read what the preview has read.
func (v *previewing) sameGrants(ctx context.Context, caller queryapi.Caller, kinds Kinds) error {
	snapshot := v.before.state.Snapshot
	later, err := newStateReader(ctx, caller, kinds, v.before.state)
	if err != nil {
		return err
	}
	if v.before.reader.equal(later, snapshot) {
		return nil
	}
	if later.err != nil {
		return later.err
	}
	return apierrors.NewConflict(previewResource, "", errors.New("what you may read has changed meanwhile: please try again"))
}

// mayRead reports whether an object, or a member, may be read.
func (v *previewing) mayRead(ref aggregate.Ref) bool {
	return v.after.mayReadSubject(policy.Subject{Ref: ref})
}

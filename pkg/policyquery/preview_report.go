package policyquery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

var previewResource = schema.GroupResource{Group: api.GroupName, Resource: string(HubPolicySources)}

// PreviewReport is the response of Preview. A subject counts once, whatever the number of its violations.
type PreviewReport struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Revision   aggregate.Revision `json:"revision"`
	AsOf       time.Time          `json:"asOf"`
	// Complete is false where the preview was ended before it had seen everything: Ended says why. Then all
	// that it says is of a part.
	Complete bool   `json:"complete"`
	Ended    string `json:"ended,omitempty"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet.
	Absent []string `json:"absent,omitempty"`

	Policies    []*PreviewPolicy     `json:"policies,omitempty"` // those that differ
	Groups      []*PreviewGroup      `json:"groups,omitempty"`   // by policy, member and namespace
	Samples     []PreviewChange      `json:"samples,omitempty"`  // some of the verdicts that differ
	Corrections []*PreviewCorrection `json:"corrections,omitempty"`
	// Withheld are policies that differ and read more than the caller may: they were not evaluated.
	Withheld      []string `json:"withheld,omitempty"`
	CPUMillis     float64  `json:"cpuMillis"`     // of all evaluations
	ViewCPUMillis float64  `json:"viewCPUMillis"` // of these, for views
}

// PreviewCounts are numbers of subjects whose verdict has violations, or is an Error, before or after.
type PreviewCounts struct {
	Appear int `json:"appear"`
	Vanish int `json:"vanish"`
	Change int `json:"change"`
	Same   int `json:"same,omitempty"`
}

// PreviewPolicy is a policy that differs.
type PreviewPolicy struct {
	PreviewCounts

	Policy   string `json:"policy"`
	Package  string `json:"package"`
	Title    string `json:"title,omitempty"`
	Severity string `json:"severity"`
	File     string `json:"file,omitempty"`
	Is       string `json:"is"` // Added, Changed or Removed

	Unknown int `json:"unknown"` // subjects whose verdict is Unknown, with violations or not
	Errors  int `json:"errors"`  // subjects whose verdict is Error
	// Evaluations took CPUMillis in all; PerEvaluationMicros is what a change takes for each subject that it
	// concerns. Shared are further subjects that are equal to one which was evaluated.
	Evaluations         int64   `json:"evaluations"`
	Shared              int64   `json:"shared"`
	Overruns            int64   `json:"overruns"`
	CPUMillis           float64 `json:"cpuMillis"`
	PerEvaluationMicros float64 `json:"perEvaluationMicros"`
}

// PreviewGroup counts the verdicts that differ of a policy in a namespace of a member; those of members have no
// namespace, and those of keys of views no member.
type PreviewGroup struct {
	previewGroup
	PreviewCounts
}

type previewGroup struct {
	Policy    string `json:"policy"`
	Member    string `json:"member,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// SchemaName is the name of the component in OpenAPI.
func (PreviewGroup) SchemaName() string { return "PreviewGroup" }

// PreviewChange is a verdict that differs.
type PreviewChange struct {
	Is     string   `json:"is"` // Appears, Vanishes or Changes
	Before *Finding `json:"before,omitempty"`
	After  *Finding `json:"after,omitempty"`
}

// PreviewCorrection counts remedies of a policy: what would be written if it enforced. Only those of Known verdicts
// and without an exemption count.
type PreviewCorrection struct {
	previewCorrection

	Wanted int `json:"wanted"` // with the candidate
	Now    int `json:"now"`    // with the active policies
}

type previewCorrection struct {
	Policy string         `json:"policy"`
	Action string         `json:"action"`
	Kind   aggregate.Kind `json:"kind"`
}

// SchemaName is the name of the component in OpenAPI.
func (PreviewCorrection) SchemaName() string { return "PreviewCorrection" }

// Words of a report.
const (
	PreviewAdded    = "Added"
	PreviewChanged  = "Changed"
	PreviewRemoved  = "Removed"
	PreviewAppears  = "Appears"
	PreviewVanishes = "Vanishes"
	PreviewChanging = "Changes"
)

// previewing is one preview for a caller.
type previewing struct {
	before, after         readScope
	readable, wasReadable map[string]bool // bindings
	withheld              []string
	describing            []string // as in Preview
	budget, held          int64    // bytes

	policies    map[string]*PreviewPolicy
	groups      map[previewGroup]*PreviewGroup
	corrections map[previewCorrection]*PreviewCorrection
	samples     []PreviewChange
	sampled     map[string]int // by policy and change
	sampleBytes int
}

// Bounds of samples.
const (
	maxSamples     = 5 // of a policy and change
	maxSampleBytes = 4 << 20
	groupBytes     = 256
)

// chooseBindings finds the bindings that differ, and which the caller may read.
func (v *previewing) chooseBindings(ctx context.Context, caller queryapi.Caller) error {
	describing := false // whether the caller may list what describes members
	for b, severity := range v.after.state.Bindings() {
		pkg := v.after.state.Package(b.Name)
		may := v.after.mayRead(b.Name)
		if may && pkg.Reads.ClusterTexts() {
			if !describing {
				var err error
				if describing, err = v.mayDescribe(ctx, caller); err != nil {
					return err
				}
			}
			may = describing
		}
		if !may {
			v.withheld = append(v.withheld, b.Name)
			continue
		}
		v.readable[b.Name] = true
		is := PreviewAdded
		if v.before.state.Package(b.Name) != nil {
			is = PreviewChanged
		}
		v.policies[b.Name] = &PreviewPolicy{Policy: b.Name, Package: pkg.Path(), Title: pkg.Title, Severity: severity, File: pkg.File, Is: is}
	}
	for b := range v.before.state.Bindings() {
		v.wasReadable[b.Name] = v.before.mayRead(b.Name)
	}
	return v.before.reader.err // grants are unknown, not denied
}

// mayDescribe reports whether the caller may list all that describes members on the hub, whose
// annotations and messages policies may read.
func (v *previewing) mayDescribe(ctx context.Context, caller queryapi.Caller) (bool, error) {
	for _, resource := range v.describing {
		if may, err := caller.HubAllows(ctx, "list", resource); err != nil || !may {
			return false, err
		}
	}
	return true, nil
}

// errMemory ends a preview that takes too much.
var errMemory = errors.New("it takes too much memory")

// evaluate evaluates, and returns the report.
func (v *previewing) evaluate(ctx context.Context, q *Preview, p *policy.Preview) (*PreviewReport, error) {
	limit := q.MaxTime
	if limit == 0 {
		limit = previewTime
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.Run(limited, policy.PreviewOptions{
		Bindings: func(name string) bool { return v.readable[name] },
		MayRead:  v.mayRead, Wait: q.Loop.Idle, MaxBytes: v.budget, Found: v.found,
	})
	report := v.report(p)
	switch {
	case v.before.reader.err != nil:
		return nil, v.before.reader.err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == nil:
		report.Complete = true
	case errors.Is(err, policy.ErrPreviewMemory), errors.Is(err, errMemory):
		report.Ended = "it takes more memory than a preview may"
	case limited.Err() != nil:
		report.Ended = "it takes longer than " + limit.String()
	default:
		return nil, err
	}
	return report, nil
}

// found takes in a subject's verdicts, as far as the caller may read them.
func (v *previewing) found(before, after *policy.Verdict) error {
	of := cmp.Or(before, after)
	if before != nil && !(v.wasReadable[before.Binding] && v.before.mayReadSubject(before.Subject)) || !shows(before) {
		before = nil
	}
	v.addCorrections(before, func(c *PreviewCorrection) { c.Now++ })
	v.addCorrections(after, func(c *PreviewCorrection) { c.Wanted++ })
	if after != nil && after.State == policy.Unknown {
		v.policyOf(of).Unknown++
	}
	if !shows(after) && (before == nil || after == nil || after.State == policy.Known) {
		after = nil // else it is not known that violations vanish
	}
	if before == nil && after == nil {
		return nil
	}
	p := v.policyOf(of)
	if after != nil && after.State == policy.Error {
		p.Errors++
	}
	if before != nil && after != nil && policy.SameVerdict(before, after) {
		p.Same++
		return nil
	}
	key := previewGroup{of.Binding, of.Subject.Ref.Member, of.Subject.Ref.Namespace}
	g := v.groups[key]
	if g == nil {
		if v.held += groupBytes; v.held > v.budget/4 {
			return errMemory
		}
		g = &PreviewGroup{previewGroup: key}
		v.groups[key] = g
	}
	change := PreviewChange{Is: PreviewChanging}
	switch {
	case before == nil:
		change.Is = PreviewAppears
		g.Appear, p.Appear = g.Appear+1, p.Appear+1
	case after == nil:
		change.Is = PreviewVanishes
		g.Vanish, p.Vanish = g.Vanish+1, p.Vanish+1
	default:
		g.Change, p.Change = g.Change+1, p.Change+1
	}
	v.addSample(change, before, after)
	return nil
}

// shows reports whether Violations lists a verdict.
func shows(x *policy.Verdict) bool {
	return x != nil && (len(x.Violations) > 0 || x.State == policy.Error)
}

// policyOf returns the policy of a verdict; one that the candidate does not have is removed.
func (v *previewing) policyOf(x *policy.Verdict) *PreviewPolicy {
	p := v.policies[x.Binding]
	if p == nil {
		pkg := v.before.state.Package(x.Binding)
		p = &PreviewPolicy{Policy: x.Binding, Package: pkg.Path(), Title: pkg.Title, Severity: pkg.Severity, Is: PreviewRemoved}
		v.policies[x.Binding] = p
	}
	return p
}

// addSample keeps some of the verdicts that differ.
func (v *previewing) addSample(c PreviewChange, before, after *policy.Verdict) {
	key := c.Is + " " + cmp.Or(before, after).Binding
	if v.sampled[key] >= maxSamples || v.sampleBytes > maxSampleBytes {
		return
	}
	v.sampled[key]++
	for _, side := range []struct {
		verdict *policy.Verdict
		in      readScope
		to      **Finding
	}{{before, v.before, &c.Before}, {after, v.after, &c.After}} {
		if side.verdict == nil {
			continue
		}
		f := side.in.findingOf(side.verdict)
		for i := range f.Violations {
			v.sampleBytes += f.Violations[i].Size()
		}
		*side.to = &f
	}
	v.samples = append(v.samples, c)
}

// addCorrections counts what a verdict calls for.
func (v *previewing) addCorrections(x *policy.Verdict, count func(*PreviewCorrection)) {
	if x == nil || x.State != policy.Known {
		return
	}
	for i := range x.Violations {
		r := x.Violations[i].Remedy
		if r == nil || x.Violations[i].Exempt != "" {
			continue
		}
		key := previewCorrection{x.Binding, r.Action, r.Target.Kind}
		if v.corrections[key] == nil {
			v.corrections[key] = &PreviewCorrection{previewCorrection: key}
		}
		count(v.corrections[key])
	}
}

// report returns what was found so far.
func (v *previewing) report(p *policy.Preview) *PreviewReport {
	costs, views := p.Costs()
	s := v.before.state
	r := &PreviewReport{
		APIVersion: "query.federator.dev/v1", Kind: "Preview", Revision: s.Snapshot.Revision(), AsOf: p.Candidate().AsOf,
		Samples: v.samples, Withheld: v.withheld, ViewCPUMillis: millis(views), CPUMillis: millis(views),
		Groups: slices.Collect(maps.Values(v.groups)), Policies: slices.Collect(maps.Values(v.policies)), Corrections: slices.Collect(maps.Values(v.corrections)),
	}
	for _, x := range r.Policies {
		c := costs[x.Policy]
		x.Evaluations, x.Shared, x.Overruns, x.CPUMillis = c.Evaluations, c.Shared, c.Overruns, millis(c.CPU)
		x.PerEvaluationMicros = 1000 * x.CPUMillis / float64(max(c.Evaluations, 1))
		r.CPUMillis += x.CPUMillis
	}
	r.sort()
	return r
}

func (r *PreviewReport) sort() {
	slices.SortFunc(r.Policies, func(a, b *PreviewPolicy) int { return cmp.Compare(a.Policy, b.Policy) })
	slices.SortFunc(r.Groups, func(a, b *PreviewGroup) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Namespace, b.Namespace))
	})
	slices.SortFunc(r.Corrections, func(a, b *PreviewCorrection) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortStableFunc(r.Samples, func(a, b PreviewChange) int {
		return cmp.Or(cmp.Compare(cmp.Or(a.After, a.Before).Policy, cmp.Or(b.After, b.Before).Policy), cmp.Compare(a.Is, b.Is))
	})
}

// write sends a report.
func (r *PreviewReport) write(w http.ResponseWriter) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // if supported
	_, _ = w.Write(append(body, '\n'))                                             // the client may be gone
	return nil
}

// miss notes members that no process answers for.
func (r *PreviewReport) miss(absent []string) {
	if r.Absent = absent; len(absent) > 0 {
		r.Complete = false
		r.Ended = cmp.Or(r.Ended, fmt.Sprintf("no process answers for %d members, as %s", len(absent), absent[0]))
	}
}

// mergePreviews returns what several processes report, each of the subjects that it judges, as one report.
func mergePreviews(of []*PreviewReport) *PreviewReport {
	out := &PreviewReport{APIVersion: "query.federator.dev/v1", Kind: "Preview", Complete: true}
	policies, groups, corrections := map[string]*PreviewPolicy{}, map[previewGroup]*PreviewGroup{}, map[previewCorrection]*PreviewCorrection{}
	sampled := map[string]int{}
	for _, r := range of {
		out.Complete, out.Ended = out.Complete && r.Complete, cmp.Or(out.Ended, r.Ended)
		if out.AsOf.IsZero() || r.AsOf.Before(out.AsOf) {
			out.AsOf = r.AsOf
		}
		out.CPUMillis, out.ViewCPUMillis = out.CPUMillis+r.CPUMillis, out.ViewCPUMillis+r.ViewCPUMillis
		out.Withheld = append(out.Withheld, r.Withheld...)
		for _, p := range r.Policies {
			if had := policies[p.Policy]; had != nil {
				had.merge(p)
			} else {
				policies[p.Policy] = p
			}
		}
		for _, g := range r.Groups {
			if had := groups[g.previewGroup]; had != nil {
				had.merge(&g.PreviewCounts)
			} else {
				groups[g.previewGroup] = g
			}
		}
		for _, c := range r.Corrections {
			if had := corrections[c.previewCorrection]; had != nil {
				had.Wanted, had.Now = had.Wanted+c.Wanted, had.Now+c.Now
			} else {
				corrections[c.previewCorrection] = c
			}
		}
		for _, c := range r.Samples {
			if key := c.Is + " " + cmp.Or(c.Before, c.After).Policy; sampled[key] < maxSamples {
				sampled[key]++
				out.Samples = append(out.Samples, c)
			}
		}
	}
	slices.Sort(out.Withheld)
	out.Withheld = slices.Compact(out.Withheld)
	out.Policies, out.Groups, out.Corrections = slices.Collect(maps.Values(policies)), slices.Collect(maps.Values(groups)), slices.Collect(maps.Values(corrections))
	out.sort()
	return out
}

// merge adds what another process says of the policy.
func (p *PreviewPolicy) merge(o *PreviewPolicy) {
	p.PreviewCounts.merge(&o.PreviewCounts)
	p.Unknown, p.Errors = p.Unknown+o.Unknown, p.Errors+o.Errors
	p.Evaluations, p.Shared, p.Overruns = p.Evaluations+o.Evaluations, p.Shared+o.Shared, p.Overruns+o.Overruns
	p.CPUMillis += o.CPUMillis
	p.PerEvaluationMicros = 1000 * p.CPUMillis / float64(max(p.Evaluations, 1))
}

func (c *PreviewCounts) merge(o *PreviewCounts) {
	c.Appear, c.Vanish, c.Change, c.Same = c.Appear+o.Appear, c.Vanish+o.Vanish, c.Change+o.Change, c.Same+o.Same
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

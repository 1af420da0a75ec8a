package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// report is a Report or ClusterReport with the fields that federator writes, as in the
// CRDs of github.com/openreports/reports-api v0.2.1. That module's types would write a
// timestamp of 1970 where there is none.
type report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Source            string                  `json:"source"`
	Scope             *corev1.ObjectReference `json:"scope,omitempty"`
	Summary           reportSummary           `json:"summary"`
	Results           []reportResult          `json:"results,omitempty"`
}

type reportSummary struct {
	Pass  int `json:"pass"`
	Fail  int `json:"fail"`
	Warn  int `json:"warn"`
	Error int `json:"error"`
	Skip  int `json:"skip"`
}

type reportResult struct {
	Policy      string                   `json:"policy"`
	Rule        string                   `json:"rule,omitempty"`
	Severity    string                   `json:"severity,omitempty"`
	Result      string                   `json:"result"`
	Scored      bool                     `json:"scored"`
	Subjects    []corev1.ObjectReference `json:"resources,omitempty"`
	Description string                   `json:"message,omitempty"`
	Timestamp   *metav1.Timestamp        `json:"timestamp,omitempty"` // when it was first seen
	Properties  map[string]string        `json:"properties,omitempty"`
}

// Results of OpenReports.
const (
	resultFail  = "fail"
	resultWarn  = "warn"
	resultError = "error"
	resultSkip  = "skip" // exempt
)

func (s *reportSummary) count(result string) {
	switch result {
	case resultFail:
		s.Fail++
	case resultWarn:
		s.Warn++
	case resultError:
		s.Error++
	case resultSkip:
		s.Skip++
	}
}

// memberResults are the results of one member within the limit, and the counts of all.
type memberResults struct {
	results []reportResult
	total   reportSummary
}

// build returns the reports of a state. Over the limit, results of the most severe policies
// are kept.
//
// The reports of members that are not known yet, which it returns without their shards' numbers, stay
// as they are.
func (r *Reports) build(state *policy.State, clusters map[string]metav1.OwnerReference) (out map[reportKey]*report, stay map[reportKey]bool) {
	results := map[string]*memberResults{"": {}}
	stay = map[reportKey]bool{}
	unread := map[string]bool{}
	for b := range state.Bindings() {
		maps.Copy(unread, state.Unread(b.Name))
	}
	for m := range state.Snapshot.Members() {
		if !r.shared.judges(m.Name) || r.shared != nil && m.Role != aggregate.Judge {
			continue // another process writes them
		}
		r.shared.take(m.Name)
		if unread[m.Name] && (!m.GivenUp || m.Version == "") { // was never reached
			at, _ := r.location(state, m.Name, clusters)
			stay[at] = true
			continue
		}
		results[m.Name] = &memberResults{}
	}
	for _, severity := range slices.Backward(policy.Severities()) {
		for b := range state.Bindings() {
			for p := range state.Packages(b.Name) {
				if p.Severity == severity {
					r.collect(state, b.Name, severity, results)
					break
				}
			}
		}
	}
	out = map[reportKey]*report{}
	for member, m := range results {
		if member == "" && m.total == (reportSummary{}) {
			continue // no policy has keys of views as subjects
		}
		r.split(out, state, member, m, clusters)
	}
	return out, stay
}

// collect adds the results of one policy where the version that is in effect has a severity.
func (r *Reports) collect(state *policy.State, name, severity string, results map[string]*memberResults) {
	in := func(member string) *memberResults {
		if state.PackageIn(name, member).Severity != severity {
			return nil
		}
		return results[member]
	}
	properties := func(member string, more ...string) map[string]string {
		p, from := map[string]string{}, r.opts.Library.Origin(state.PackageIn(name, member).Name)
		for i := 0; i < len(more); i += 2 {
			p[more[i]] = clip.Text(more[i+1], maxText)
		}
		for name, value := range map[string]string{"source": from.Source, "commit": from.Commit, "path": from.Path} {
			if value != "" {
				p[name] = clip.Text(value, maxText)
			}
		}
		return p
	}
	health, _ := state.Health(name)
	broken := health.Views
	for member, n := range state.Counts(name) {
		m := in(member)
		if m == nil {
			continue
		}
		m.total.Pass += n.Known
		m.total.Fail += n.Violations
		m.total.Skip += n.Exempt
		m.total.Error += n.Errors
		if broken != "" && n.Errors > 0 {
			m.add(r.opts.PerMember, func() reportResult {
				return reportResult{
					Policy: name, Rule: state.PackageIn(name, member).Path(), Severity: severity, Result: resultError, Description: clip.Text(broken, maxText), Properties: properties(member),
				}
			})
		}
	}
	for v := range state.Findings(name, "") {
		m := in(v.Subject.Ref.Member)
		if m == nil {
			continue
		}
		base := func(i int, result, message string, more ...string) func() reportResult {
			return func() reportResult {
				more = append(more, "revision", fmt.Sprint(uint64(v.Revision)))
				if v.State == policy.Unknown {
					more = append(more, "state", v.State.String())
				}
				if v.Subject.Key != "" {
					more = append(more, "key", v.Subject.Key)
				}
				var seen *metav1.Timestamp
				if s := v.FirstSeen.Seconds(i); s != 0 {
					seen = &metav1.Timestamp{Seconds: s}
				}
				return reportResult{
					Policy: name, Rule: state.PackageIn(name, v.Subject.Ref.Member).Path(), Severity: severity, Result: result, Scored: result == resultFail, Timestamp: seen,
					Subjects: subjectsOf(state, v.Subject), Description: clip.Text(message, maxText), Properties: properties(v.Subject.Ref.Member, more...),
				}
			}
		}
		if v.State == policy.Error {
			if broken == "" {
				m.add(r.opts.PerMember, base(0, resultError, v.Message))
			}
			continue
		}
		for i, x := range v.Violations {
			if x.Exempt != "" {
				m.add(r.opts.PerMember, base(i, resultSkip, x.Msg, "exempt", x.Exempt))
			} else {
				m.add(r.opts.PerMember, base(i, resultFail, x.Msg))
			}
		}
		if v.State == policy.Known && len(v.Violations) > 0 {
			m.total.Pass--
		}
	}
}

func (m *memberResults) add(limit int, make func() reportResult) {
	if len(m.results) < limit {
		m.results = append(m.results, make())
	}
}

// subjectsOf returns a reference to an object; members and keys of views have none.
func subjectsOf(state *policy.State, s policy.Subject) []corev1.ObjectReference {
	if s.Ref.Kind == "" {
		return nil
	}
	kind, group := s.Ref.Kind.Split()
	ref := corev1.ObjectReference{APIVersion: group, Kind: kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name}
	if o, ok := state.Snapshot.Get(s.Ref); ok {
		ref.APIVersion, ref.UID = o.APIVersion(), types.UID(o.UID())
	}
	return []corev1.ObjectReference{ref}
}

// split distributes the results of a member over reports. The summary of the first one
// includes the omitted results, so that the summaries add up to all results.
func (r *Reports) split(out map[reportKey]*report, state *policy.State, member string, m *memberResults, clusters map[string]metav1.OwnerReference) {
	at, blank := r.location(state, member, clusters)
	if blank == nil {
		return
	}
	var shards []*report
	size := 0
	add := func(x reportResult) {
		text, err := json.Marshal(x)
		if err != nil {
			panic(err) // strings only
		}
		if last := len(shards) - 1; last < 0 || len(shards[last].Results) >= r.opts.PerReport || size+len(text) > reportBytes {
			next := *blank
			next.ObjectMeta = *blank.ObjectMeta.DeepCopy()
			shards, size = append(shards, &next), 0
		}
		p := shards[len(shards)-1]
		p.Results = append(p.Results, x)
		p.Summary.count(x.Result)
		size += len(text)
	}
	var reported reportSummary
	for _, x := range m.results {
		reported.count(x.Result)
		add(x)
	}
	rest := reportSummary{
		Pass: m.total.Pass, Fail: m.total.Fail - reported.Fail, Error: max(0, m.total.Error-reported.Error), Skip: m.total.Skip - reported.Skip,
	}
	if left := rest.Fail + rest.Error + rest.Skip; left > 0 {
		query := "/query/v1/violations?member=" + url.QueryEscape(member)
		add(reportResult{
			Policy: "federator", Rule: "left-out", Result: resultWarn, Properties: map[string]string{"leftOut": fmt.Sprint(left), "query": query},
			Description: fmt.Sprintf("%d results are omitted from the reports: GET %s returns all results", left, query),
		})
	}
	if len(shards) == 0 {
		shards = []*report{blank}
	}
	s := &shards[0].Summary
	s.Pass, s.Fail, s.Error, s.Skip = s.Pass+rest.Pass, s.Fail+rest.Fail, s.Error+rest.Error, s.Skip+rest.Skip
	for i, p := range shards {
		p.Name = fmt.Sprintf("%s-%d", at.name, i+1)
		out[reportKey{at.namespace, p.Name}] = p
	}
}

// location returns the namespace and name prefix of a member's reports, and an empty one;
// nil if there are none because the Cluster is being deleted.
func (r *Reports) location(state *policy.State, member string, clusters map[string]metav1.OwnerReference) (reportKey, *report) {
	p := &report{
		TypeMeta:   metav1.TypeMeta{APIVersion: reportsGroup + "/" + reportsVersion, Kind: "ClusterReport"},
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{managedBy: "federator"}, Annotations: map[string]string{}},
		Source:     "federator",
	}
	if member == "" {
		return reportKey{name: r.shared.keysName()}, p
	}
	p.Labels[reportMember] = remediate.LabelValue(member)
	namespace, name, _ := strings.Cut(member, "/")
	owner, ok := clusters[member]
	isCluster := r.isCluster(member)
	ok = ok && isCluster // else one of the same name, which says nothing of the member
	m, _ := state.Snapshot.Member(member)
	switch {
	case ok && string(owner.UID) == m.UID:
		p.Kind, p.Namespace = "Report", namespace
		p.OwnerReferences = []metav1.OwnerReference{owner}
		p.Scope = &corev1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace, Name: name, UID: owner.UID}
		return reportKey{namespace, "federator-" + objectName(name)}, p
	case ok || slices.Contains(r.opts.Namespaces, namespace) && isCluster:
		return reportKey{}, nil
	}
	return reportKey{name: "federator-" + objectName(namespace+"."+name)}, p
}

// isCluster reports whether a member is one that a Cluster describes, or has described.
func (r *Reports) isCluster(member string) bool {
	if r.opts.Describes == nil {
		return true
	}
	o := r.opts.Describes(member)
	return o == nil || o.GroupVersionKind().Group == clusterv1.GroupVersion.Group
}

var invalidNameChars = regexp.MustCompile(`[^a-z0-9.-]+`)

// objectName makes a text usable in an object's name: invalid characters are replaced, long
// names are cut, and a digest keeps the result unique.
func objectName(s string) string {
	name := invalidNameChars.ReplaceAllString(strings.ToLower(s), "-")
	if name == s && len(name) <= 200 {
		return name
	}
	return strings.Trim(name[:min(len(name), 180)], "-.") + "-" + digest([]byte(s))[:12]
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ownership is which reports this process writes, where several share a fleet; nil where it writes all. It is of one
// state. Keys are without the numbers of shards.
type ownership struct {
	fleet  *ReportsFleet
	leads  bool
	others map[reportKey]bool   // of all members and processes
	own    map[reportKey]string // of members that are judged here, by the state too, and "" for keys of views
}

// ownership returns the present one, and whether it is known.
func (r *Reports) ownership() (owns *ownership, known bool) {
	if r.opts.Fleet == nil {
		return nil, true
	}
	f := r.opts.Fleet()
	if f == nil {
		return nil, false
	}
	o := &ownership{fleet: f, leads: r.opts.IsLeader(), others: map[reportKey]bool{}, own: map[reportKey]string{{name: keysName(f.Self)}: ""}}
	for member := range f.Judges {
		for _, key := range locations(member) {
			o.others[key] = true
		}
	}
	for _, process := range f.Processes {
		o.others[reportKey{name: keysName(process)}] = true
	}
	return o, true
}

// locations are where the reports of a member may be: it depends on what describes it.
func locations(member string) [2]reportKey {
	namespace, name, _ := strings.Cut(member, "/")
	return [2]reportKey{{namespace, "federator-" + objectName(name)}, {name: "federator-" + objectName(namespace+"."+name)}}
}

// keysName begins the names of a process's reports about keys of views. Those of members have a dot.
func keysName(process string) string {
	return "federator-fleet-" + objectName(strings.ReplaceAll(process, ".", "_"))
}

func (o *ownership) keysName() string {
	if o == nil {
		return "federator-fleet"
	}
	return keysName(o.fleet.Self)
}

func (o *ownership) judges(member string) bool {
	return o == nil || o.fleet.Judges[member] == o.fleet.Self
}

// take has the reports of a member written here.
func (o *ownership) take(member string) {
	if o == nil {
		return
	}
	for _, key := range locations(member) {
		o.own[key] = member
	}
}

// gains reports whether members are judged here that were not: another process has written their reports last.
func (o *ownership) gains(was *ownership) bool {
	if o == nil || was == nil || o.fleet == was.fleet {
		return false
	}
	for member := range o.fleet.Judges {
		if o.judges(member) && !was.judges(member) {
			return true
		}
	}
	return false
}

// same reports whether the same reports are to be written.
func (o *ownership) same(was *ownership) bool {
	return o == nil || was != nil && o.fleet == was.fleet && o.leads == was.leads
}

// mayWrite reports whether this process may write a report now, or remove it.
func (r *Reports) mayWrite(key reportKey) bool {
	o := r.shared
	if o == nil {
		return r.opts.IsLeader()
	}
	now := r.opts.Fleet()
	if member, own := o.own[key.unnumbered()]; own {
		return member == "" || now == o.fleet || now != nil && now.Judges[member] == o.fleet.Self
	}
	return now == o.fleet && !o.others[key.unnumbered()] && r.opts.IsLeader() // it is of nobody any more
}

// versionOf returns the version of a report that this process may write over, "" for any.
func (r *Reports) versionOf(key reportKey) string {
	if r.shared == nil {
		return ""
	}
	return r.known[key].version
}

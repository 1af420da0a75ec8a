package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history/internal/segments"
)

// Type says what a record is about.
type Type string

// The types of records.
const (
	Object  Type = "Object"
	Scope   Type = "Scope" // a kind in a member
	Member  Type = "Member"
	Verdict Type = "Verdict"
	Action  Type = "Action"
	Policy  Type = "Policy" // its plans, halts, approvals, stops and commits
	Gap     Type = "Gap"    // what was between From and To is not recorded, or not all of it
)

// Transitions of objects, members and verdicts. Those of a scope are the states of aggregate.State, or Removed; of an Action its phases.
const (
	Created = "Created"
	Changed = "Changed"
	Deleted = "Deleted"

	Joined  = "Joined"
	Left    = "Left"
	Removed = "Removed"

	Opened  = "Opened"
	Closed  = "Closed"
	Unknown = "Unknown" // the verdict on a subject with violations
	Known   = "Known"
	Failed  = "Failed" // its evaluation
)

// How a Changed violation was exempted: it was not exempt before, or is not any more.
const (
	ExemptionBegan = "Began"
	ExemptionEnded = "Ended"
)

// Transitions of policies and their sources. Those of Actions are their phases.
const (
	PlanMade       = "PlanMade"
	PlanApproved   = "Approved"
	PlanDone       = "PlanDone"
	PlanSuperseded = "PlanSuperseded"
	PlanExpired    = "PlanExpired"

	ApprovalGiven     = "ApprovalGiven"
	ApprovalCounts    = "ApprovalCounts"
	ApprovalIgnored   = "ApprovalIgnored"
	ApprovalExpired   = "ApprovalExpired"
	ApprovalWithdrawn = "ApprovalWithdrawn"

	Halted    = "Halted"
	HaltEnded = "HaltEnded"

	Stopped   = "Stopped"   // by a person, or by federator, until Resumed
	Suspended = "Suspended" // by the FleetPolicy, until Resumed
	Resumed   = "Resumed"

	CommitTaken     = "CommitTaken" // its policies are in effect
	CommitRefused   = "CommitRefused"
	CommitTakenBack = "CommitTakenBack" // while it was rolled out
)

// MalformedStop is the Subject of what looks like a stop and is not understood: it stops everything.
const MalformedStop = "malformed stop"

// Kinds of what is on the hub, as records of types Action and Policy name it.
const (
	FleetPolicyKind  aggregate.Kind = "FleetPolicy.federator.dev"
	PlanKind         aggregate.Kind = "Plan.federator.dev"
	ApprovalKind     aggregate.Kind = "Approval.federator.dev"
	PolicySourceKind aggregate.Kind = "PolicySource.federator.dev"
	StopKind         aggregate.Kind = "ConfigMap" // of federator's namespace
)

// Record is one transition.
type Record struct {
	// Position is its place in the log of the process that has recorded it: set when it is read, and 0 where the log has lost something.
	Position uint64    `json:"position"`
	Time     time.Time `json:"time"` // when it was recorded
	// MemberTime is when it happened by the clock of the member or, of what is on the hub, as that says: not set otherwise.
	MemberTime *time.Time         `json:"memberTime,omitempty"`
	Revision   aggregate.Revision `json:"revision,omitempty"`
	Trace      string             `json:"trace,omitempty"` // the trace ID, in hexadecimal
	// Key is equal for the same transition, taken again.
	Key        string `json:"key"`
	Type       Type   `json:"type"`
	Transition string `json:"transition"`

	Member          string         `json:"member,omitempty"`
	MemberUID       string         `json:"memberUID,omitempty"`
	Kind            aggregate.Kind `json:"kind,omitempty"`
	Namespace       string         `json:"namespace,omitempty"`
	Name            string         `json:"name,omitempty"`
	UID             string         `json:"uid,omitempty"`
	ResourceVersion string         `json:"resourceVersion,omitempty"`
	// Resource is what objects are authorized by: the plural that they were read under.
	Resource string `json:"resource,omitempty"`

	// Action is the name of an Action, whose target is the object.
	Action string `json:"action,omitempty"`
	// By is who made it happen: users, or the author of a commit.
	By     string `json:"by,omitempty"`
	Source string `json:"source,omitempty"` // a PolicySource

	Policy  string `json:"policy,omitempty"`
	Version string `json:"version,omitempty"` // of the policy
	// Subject is the key of a view, where that is the subject; of type Policy the halt, commit or stop.
	Subject string `json:"subject,omitempty"`
	// Severity, FirstSeen, Violation and Exempt are of a violation.
	Severity  string     `json:"severity,omitempty"`
	FirstSeen *time.Time `json:"firstSeen,omitempty"`
	Violation string     `json:"violation,omitempty"` // its message
	Exempt    string     `json:"exempt,omitempty"`    // why it is exempt
	// Exemption is ExemptionBegan or ExemptionEnded of a transition with which a violation became or ceased to be exempt.
	Exemption string `json:"exemption,omitempty"`
	// Reads is what the version of the policy looked at besides its subjects; nil: nothing.
	Reads *Reads `json:"reads,omitempty"`
	// External are the PolicySources whose external documents it read; "" is all.
	External []string `json:"external,omitempty"`

	Changes []Change `json:"changes,omitempty"`
	More    int      `json:"more,omitempty"` // changes that are not recorded
	Message string   `json:"message,omitempty"`
	// From and To are the times of a Gap: From is not set where it is not known.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`

	// Was is the state of a scope before; not set where it is not known.
	Was string `json:"was,omitempty"`
	// Net is set where several transitions are folded into one: what the record says is how the two ends of a span differ.
	Net *Net `json:"net,omitempty"`

	// violation is the digest of a violation.
	violation uint64
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (Record) SchemaName() string { return "Transition" }

// Net says what was folded.
type Net struct {
	First       time.Time `json:"first"`       // when the first transition was recorded; the last was at the time of the record
	Transitions int       `json:"transitions"` // at least so many
	// Incomplete says that a gap is about it within the span, or reaches into it: how it differs may not be all, or not be so.
	Incomplete bool `json:"incomplete,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (Net) SchemaName() string { return "NetTransition" }

// Reads is what a policy looks at besides its subjects.
type Reads struct {
	Kinds []aggregate.Kind `json:"kinds,omitempty"`
	// Members are those that the policy sees; nil: all, or more than are recorded.
	Members    []string `json:"members,omitempty"`
	MemberUIDs []string `json:"memberUIDs,omitempty"`
}

// stored is a record as it is kept, without its facets and its key.
type stored struct {
	Type       Type       `json:"t"`
	Transition string     `json:"x"`
	MemberTime int64      `json:"mt,omitempty"` // nanoseconds since 1970
	MemberUID  string     `json:"mu,omitempty"`
	Version    string     `json:"rv,omitempty"`
	Resource   string     `json:"r,omitempty"`
	Trace      string     `json:"tr,omitempty"`
	Key        string     `json:"k,omitempty"` // where it does not follow from the others
	Policy     string     `json:"pv,omitempty"`
	Subject    string     `json:"s,omitempty"`
	Severity   string     `json:"sv,omitempty"`
	FirstSeen  int64      `json:"fs,omitempty"` // seconds since 1970
	Violation  string     `json:"v,omitempty"`
	Digest     uint64     `json:"d,omitempty"`
	Exempt     string     `json:"e,omitempty"`
	Exemption  string     `json:"ex,omitempty"`
	Reads      *Reads     `json:"rd,omitempty"`
	External   []string   `json:"xd,omitempty"`
	Fields     []Change   `json:"c,omitempty"`
	More       int        `json:"m,omitempty"`
	Message    string     `json:"msg,omitempty"`
	Action     string     `json:"a,omitempty"`
	By         string     `json:"by,omitempty"`
	Source     string     `json:"src,omitempty"`
	From       *time.Time `json:"from,omitempty"`
	To         *time.Time `json:"to,omitempty"`
	Was        string     `json:"w,omitempty"`
}

// besideFacet is in the place of the policy of records that are about all objects of a scope or member, or more: these have no policy, and are found by it
// where others are asked for.
const besideFacet = "(beside)"

// IsBeside reports whether a record is about all objects of a scope or member, or more: a gap, a member that joins or leaves, a scope that is
// not read any more.
func (r *Record) IsBeside() bool {
	switch r.Type {
	case Gap:
		return true
	case Member:
		return r.Transition == Joined || r.Transition == Left
	case Scope:
		return r.Transition == Removed
	}
	return false
}

// Bounds of what is kept of a record, in bytes: beyond the first there are fewer changes, beyond the second of a text its beginning.
const (
	maxPayload = 256 << 10
	maxText    = 16 << 10
)

// entry returns a record as it is appended.
func (r *Record) entry() (segments.Entry, error) {
	s := stored{
		Type: r.Type, Transition: r.Transition, MemberUID: r.MemberUID, Version: r.ResourceVersion, Resource: r.Resource, Trace: r.Trace, Policy: r.Version,
		Subject: r.Subject, Severity: r.Severity, Violation: clip.Text(r.Violation, maxText), Digest: r.violation, Exempt: r.Exempt, Exemption: r.Exemption, Reads: r.Reads, External: r.External, Fields: r.Changes, More: r.More,
		Message: clip.Text(r.Message, maxText), Action: r.Action, By: r.By, Source: r.Source, From: r.From, To: r.To, Was: r.Was,
	}
	if r.MemberTime != nil {
		s.MemberTime = r.MemberTime.UnixNano()
	}
	if r.FirstSeen != nil {
		s.FirstSeen = r.FirstSeen.Unix()
	}
	if r.Key != r.key() {
		s.Key = r.Key
	}
	payload, err := json.Marshal(&s)
	for err == nil && len(payload) > maxPayload && len(s.Fields) > 0 {
		keep := len(s.Fields) / 2
		s.Fields, s.More = s.Fields[:keep], s.More+len(s.Fields)-keep
		payload, err = json.Marshal(&s)
	}
	switch {
	case err != nil:
		return segments.Entry{}, fmt.Errorf("record %.200s: %w", r.Key, err)
	case len(payload) > maxPayload:
		return segments.Entry{}, fmt.Errorf("record %.200s: it has %d bytes", r.Key, len(payload))
	}
	for _, facet := range [...]string{r.Member, string(r.Kind), r.Namespace, r.Name, r.UID, r.Policy} {
		if len(facet) > segments.MaxFacet {
			return segments.Entry{}, fmt.Errorf("record %.200s: a name of it has %d bytes", r.Key, len(facet))
		}
	}
	policy := r.Policy
	if r.IsBeside() {
		policy = besideFacet
	}
	return segments.Entry{
		Time: r.Time, Revision: int64(r.Revision), Member: r.Member, Kind: string(r.Kind), Namespace: r.Namespace, Name: r.Name, UID: r.UID, Policy: policy,
		Payload: payload,
	}, nil
}

// recordOf returns what an entry of the log says.
func recordOf(e *segments.Entry) (Record, error) {
	var s stored
	if err := json.Unmarshal(e.Payload, &s); err != nil {
		return Record{}, fmt.Errorf("record at %d: %w", e.Position, err)
	}
	r := Record{
		Position: e.Position, Time: e.Time, Revision: aggregate.Revision(e.Revision), Trace: s.Trace, Type: s.Type, Transition: s.Transition,
		Member: e.Member, MemberUID: s.MemberUID, Kind: aggregate.Kind(e.Kind), Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: s.Version, Resource: s.Resource,
		Policy: e.Policy, Version: s.Policy, Subject: s.Subject, Severity: s.Severity, Violation: s.Violation, violation: s.Digest, Exempt: s.Exempt, Exemption: s.Exemption, Reads: s.Reads, External: s.External,
		Changes: s.Fields, More: s.More, Message: s.Message, Action: s.Action, By: s.By, Source: s.Source,
		From: s.From, To: s.To, Was: s.Was,
	}
	if r.Policy == besideFacet {
		r.Policy = ""
	}
	if s.MemberTime != 0 {
		at := time.Unix(0, s.MemberTime).UTC()
		r.MemberTime = &at
	}
	if s.FirstSeen != 0 {
		at := time.Unix(s.FirstSeen, 0).UTC()
		r.FirstSeen = &at
	}
	if r.Key = s.Key; r.Key == "" {
		r.Key = r.key()
	}
	return r, nil
}

// key returns the key that follows from the other fields: of an object its member's UID, its own and the version that it
// came with; of one that is gone its UIDs alone, since nothing is deleted twice.
func (r *Record) key() string {
	switch {
	case r.Type == Object && r.Transition == Deleted:
		return join(r.MemberUID, r.UID, "deleted")
	case r.Type == Object:
		return join(r.MemberUID, r.UID, r.ResourceVersion)
	case r.Type == Verdict:
		var since int64
		if r.FirstSeen != nil {
			since = r.FirstSeen.Unix()
		}
		return join(r.Policy, r.Version, r.MemberUID, r.Member, string(r.Kind), r.Namespace, r.Name, r.Subject, fmt.Sprintf("%016x", r.violation), fmt.Sprint(since), r.Transition)
	}
	return ""
}

// Key makes a key of parts, in which a slash is written %2F.
func Key(parts ...string) string { return join(parts...) }

// join is Key.
func join(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(escaper.Replace(p))
	}
	return b.String()
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

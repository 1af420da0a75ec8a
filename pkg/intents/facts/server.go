package facts

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Path is where a Server is served.
const Path = "/facts/v1/"

const (
	membersPath, healthPath, ownersPath, targetsPath = Path + "members", Path + "health", Path + "owners", Path + "targets"
	// maxAsked bounds the targets of a question, and maxQuestion its bytes.
	maxAsked    = 1000
	maxQuestion = 4 << 20
)

// Local is what this process knows of members that it judges: functions as in remediate.Options.
type Local struct {
	Held       func(member string) error
	MemberUID  func(member string) string
	MemberAway func(member string) error
	Health     func(remediate.Written) remediate.Health
	Owner      func(policy.Ref) remediate.Ownership
	// Resolve says what targets are of which other processes have remedies, as enforce.Corrector does.
	Resolve func([]enforce.Claim) []enforce.Resolution
	// Summaries are the verdicts of all policies as of now, nil while they are not known.
	Summaries func() map[string]Summary
	// Evidence is that of what rolls out, nil while there is none; nil: nothing rolls out.
	Evidence func() *evidence.Said
}

func (l *Local) validate() error {
	if l.Held == nil || l.MemberUID == nil || l.MemberAway == nil || l.Health == nil || l.Owner == nil || l.Resolve == nil || l.Summaries == nil {
		return errors.New("facts: Held, MemberUID, MemberAway, Health, Owner, Resolve and Summaries are required")
	}
	return nil
}

// Summary is what a process says of its verdicts of a policy.
type Summary struct {
	Counts map[string]Counts `json:"counts"` // by member; those of keys of views are of ""
	// Protected is how many corrections are of targets that are protected, by member.
	Protected map[string]int `json:"protected,omitempty"`
	Synced    bool           `json:"synced"`            // all that it reads has been listed once
	Problem   string         `json:"problem,omitempty"` // of its evaluation, as policy.Health says it
	Remedies
}

// Remedies are what a process says of the corrections that its verdicts require, as enforce.EnforcementStatus does.
type Remedies struct {
	Counting          bool   `json:"counting,omitempty"` // not all verdicts have been counted
	OverCeiling       int    `json:"overCeiling,omitempty"`
	OverCeilingReason string `json:"overCeilingReason,omitempty"`
	Contradicting     int    `json:"contradicting,omitempty"`
	Contradiction     string `json:"contradiction,omitempty"`
}

// add adds what another process says.
func (r *Remedies) add(o *Remedies) {
	r.Counting = r.Counting || o.Counting
	r.OverCeiling, r.Contradicting = r.OverCeiling+o.OverCeiling, r.Contradicting+o.Contradicting
	r.OverCeilingReason = cmp.Or(r.OverCeilingReason, o.OverCeilingReason)
	r.Contradiction = cmp.Or(r.Contradiction, o.Contradiction)
}

// Counts are policy.Counts, as short as they can be written: Known, Unknown, Errors, Violations and Exempt.
type Counts [5]int

// CountsOf returns Counts.
func CountsOf(c policy.Counts) Counts {
	return Counts{c.Known, c.Unknown, c.Errors, c.Violations, c.Exempt}
}

// Policy returns them as package policy has them.
func (c Counts) Policy() policy.Counts {
	return policy.Counts{Known: c[0], Unknown: c[1], Errors: c[2], Violations: c[3], Exempt: c[4]}
}

// fact is what is known of a member.
type fact struct {
	UID   string `json:"uid,omitempty"`
	Held  string `json:"held,omitempty"`
	Away  string `json:"away,omitempty"`
	Owner string `json:"owner,omitempty"` // why it is not known who manages targets
}

// memberFacts answer membersPath.
type memberFacts struct {
	Process   string             `json:"process"`
	Members   map[string]fact    `json:"members"`
	Summaries map[string]Summary `json:"summaries"` // null: not known
	Evidence  *evidence.Said     `json:"evidence,omitempty"`
}

// Server answers Clients of other processes.
type Server struct {
	local Local
	fleet func() *intents.Fleet
	diffs *Differences
}

// NewServer returns a Server. diffs may be nil: then nothing is known of commits.
func NewServer(local Local, fleet func() *intents.Fleet, diffs *Differences) (*Server, error) {
	if fleet == nil {
		return nil, errors.New("facts: who judges which members is required")
	}
	return &Server{local, fleet, diffs}, local.validate()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	if text := err.Error(); text != "" {
		return text
	}
	return "nobody knows why"
}

// ServeHTTP implements http.Handler. Who may ask is the caller's to decide.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case r.URL.Path == membersPath && r.Method == http.MethodGet:
		answer = s.members()
	case r.URL.Path == differencePath && r.Method == http.MethodGet && s.diffs != nil:
		d, ok := s.diffs.answer(r)
		if !ok {
			http.Error(w, "the commit has not been compared here", http.StatusNotFound)
			return
		}
		answer = d
	case r.URL.Path == healthPath && r.Method == http.MethodPost:
		var asked []remediate.Written
		if !read(w, r, &asked) {
			return
		}
		out := make([]remediate.Health, len(asked))
		fleet := s.fleet()
		for n, a := range asked {
			if out[n] = elsewhere; fleet.Judges(a.Target.Member) {
				out[n] = s.local.Health(a)
			}
		}
		answer = out
	case r.URL.Path == ownersPath && r.Method == http.MethodPost:
		var asked []policy.Ref
		if !read(w, r, &asked) {
			return
		}
		out := make([]remediate.Ownership, len(asked))
		fleet := s.fleet()
		for n, a := range asked {
			if out[n].Unknown = notJudged; fleet.Judges(a.Member) {
				out[n] = s.local.Owner(a)
			}
		}
		answer = out
	case r.URL.Path == targetsPath && r.Method == http.MethodPost:
		var asked []enforce.Claim
		if !read(w, r, &asked) {
			return
		}
		answer = s.resolve(asked)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// Only a client that has gone away can make this fail.
	_ = json.NewEncoder(w).Encode(answer)
}

// resolve says what targets are, as far as this process is to judge them.
func (s *Server) resolve(asked []enforce.Claim) []enforce.Resolution {
	out := s.local.Resolve(asked)
	fleet := s.fleet()
	for n := range asked {
		if !fleet.Judges(asked[n].Target.Member) {
			out[n] = enforce.Resolution{Why: notJudged}
		}
	}
	return out
}

const notJudged = "the process that was asked does not judge its member"

var elsewhere = remediate.Health{Status: remediate.Unknown, Why: notJudged}

func read[T any](w http.ResponseWriter, r *http.Request, into *[]T) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(into)
	if err == nil && len(*into) > maxAsked {
		err = errors.New("too many are asked about at once")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func (s *Server) members() *memberFacts {
	fleet := s.fleet()
	out := &memberFacts{Members: map[string]fact{}, Summaries: s.local.Summaries()}
	if s.local.Evidence != nil {
		out.Evidence = s.local.Evidence()
	}
	if fleet == nil {
		out.Summaries = nil
		return out
	}
	out.Process = fleet.Self
	for member := range fleet.Members {
		if fleet.Judges(member) {
			out.Members[member] = fact{
				UID: s.local.MemberUID(member), Held: errorText(s.local.Held(member)), Away: errorText(s.local.MemberAway(member)),
				Owner: s.local.Owner(policy.Ref{Member: member}).Unknown,
			}
		}
	}
	return out
}

// chunks parts a list so that each part may be asked at once.
func chunks[T any](list []T) [][]T { return slices.Collect(slices.Chunk(list, maxAsked)) }

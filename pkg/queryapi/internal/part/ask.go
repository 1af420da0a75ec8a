package part

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// AskHeader is the request header with an Ask. Only the listener for peers reads it.
const AskHeader = "Federator-Part"

// ContentType is that of parts.
const ContentType = "application/vnd.federator.part"

// Ask is what a process wants of another besides the request of the client.
type Ask struct {
	// Known is the digest of the members that the process judges as far as the other knows.
	Known string `json:"known"`
	// Except are members to leave out, Also such to answer for that the process holds without
	// judging them. Both are sorted.
	Except []string `json:"except,omitempty"`
	Also   []string `json:"also,omitempty"`
	// After is where a list continues, and At the revision of its snapshot, 0 for the newest.
	After aggregate.Position `json:"after,omitzero"`
	At    aggregate.Revision `json:"at,omitempty"`
	// Digits are those of the revisions that will be in events.
	Digits int `json:"digits,omitempty"`
	// Plain asks for the columns that every kind has: the processes differ in others.
	Plain bool `json:"plain,omitempty"`
	// Here is set, and never sent, where the process asks itself.
	Here bool `json:"-"`
	// Fallback asks for the format to use in place of protobuf.
	Fallback bool `json:"fallback,omitempty"`
	// Messages asks for a format that messages of a WebSocket can have: no protobuf.
	Messages bool `json:"messages,omitempty"`

	// Left reports whether a member is none of the fleet any more. Who answers sets it.
	Left func(member string) bool `json:"-"`
	// Judged is set by queries that answer only for members which are judged: the snapshot that the answer is of.
	Judged *aggregate.Snapshot `json:"-"`
}

// Set sets the header of a request.
func (a *Ask) Set(h http.Header) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("part: %w", err)
	}
	h.Set(AskHeader, base64.RawURLEncoding.EncodeToString(text))
	return nil
}

// maxDigits is how many digits a revision may have.
const maxDigits = 16

// Parse returns the Ask of a request; nil if it has none.
func Parse(h http.Header) (*Ask, error) {
	value := h.Get(AskHeader)
	if value == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("part: %w", err)
	}
	var a Ask
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("part: %w", err)
	}
	if a.Digits < 0 || a.Digits > maxDigits {
		return nil, fmt.Errorf("part: revisions cannot have %d digits", a.Digits)
	}
	return &a, nil
}

type askKey struct{}

// With returns a context that carries an Ask: the request is for a part.
func With(ctx context.Context, a *Ask) context.Context { return context.WithValue(ctx, askKey{}, a) }

// From returns the Ask that With put into ctx, nil without one.
func From(ctx context.Context) *Ask {
	a, _ := ctx.Value(askKey{}).(*Ask)
	return a
}

// Answers reports whether a part that was asked for is also of a member.
func (a *Ask) Answers(m *aggregate.Member) bool {
	if m.Role == aggregate.Judge {
		_, not := slices.BinarySearch(a.Except, m.Name)
		return !not
	}
	_, also := slices.BinarySearch(a.Also, m.Name)
	return also && m.Role.StandsBy()
}

// Digest is a digest of names of members, which are sorted.
func Digest(members []string) string {
	h := sha256.New()
	for _, name := range members {
		h.Write([]byte(name))
		h.Write([]byte{0})
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// NewHeader returns the header of a part of a snapshot, of an index with a first revision.
func NewHeader(first aggregate.Revision, s *aggregate.Snapshot, a *Ask) *Header {
	h := &Header{Epoch: first, Revision: s.Revision()}
	judged := []string{}
	for m := range s.Members() {
		switch {
		case m.Role == aggregate.Judge:
			judged = append(judged, m.Name)
		case a.Answers(&m):
			h.Also = append(h.Also, m.Name)
		}
	}
	if Digest(judged) != a.Known {
		h.Differs, h.Members = true, judged
	}
	return h
}

// Members returns the members of a snapshot that a part is of, in order.
func (a *Ask) Members(s *aggregate.Snapshot) []string {
	names := []string{}
	for m := range s.Members() {
		if a.Answers(&m) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Unsure returns the members of a part of which it is not known whether they serve what the others do
// not, in an API group or, where that is "*", in any.
func (a *Ask) Unsure(s *aggregate.Snapshot, group string) (unsure []string) {
	for m := range s.Members() {
		silent := slices.Contains(m.Silent, group) || group == "*" && len(m.Silent) > 0
		if a.Answers(&m) && (m.Serves == nil || silent) {
			unsure = append(unsure, m.Name)
		}
	}
	return unsure
}

// Answers are the parts of a query.
type Answers struct {
	Bodies   [][]byte           // what the processes answered, which are not refused
	Absent   []string           // members that none of them answers for, in order
	Revision aggregate.Revision // that stands for those of all parts
	Partial  bool               // a process did not answer, whether members are absent or not
	// Members are those that a process answers for, in order, and Here those that this one does. Only of what is pulled.
	Members, Here []string
}

// Moved reports whether between two snapshots a member was taken from, or given to, a process that answers for the
// members which it judges. One that came to the fleet, or left it, was not.
func (a *Ask) Moved(before, after *aggregate.Snapshot) bool {
	judged := *a
	judged.Also = nil
	for m := range before.Members() {
		now, there := after.Member(m.Name)
		switch was := judged.Answers(&m); {
		case !there && was && (a.Left == nil || !a.Left(m.Name)), there && was != judged.Answers(&now):
			return true
		}
	}
	return false
}

// JudgedHeader is NewHeader for an answer that is only of members which the process judges.
func JudgedHeader(first aggregate.Revision, a *Ask) *Header {
	judged := *a
	judged.Also = nil
	return NewHeader(first, a.Judged, &judged)
}

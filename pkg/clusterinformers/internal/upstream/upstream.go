// Package upstream reads what another federator says of its members, for those that are read there: the members
// query of its query API, with facts. What it says is hostile input: it is bounded, and refused where it makes no sense.
//
// It holds nothing, starts no goroutine, and may be called by any.
package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
)

// MembersPath is where the members query is, below the server's root.
const MembersPath = "/query/v1/members"

// Bounds of an answer.
const (
	PageSize = 100 // members that are asked for at a time

	maxItem       = 512 << 10 // bytes of one member
	maxKinds      = 10_000
	maxLabels     = 256
	maxConditions = 32
	maxText       = 256
	maxMessage    = 512
	maxAnnotated  = 64 << 10 // bytes of annotations
)

// ErrMalformed is of an answer that makes no sense.
var ErrMalformed = errors.New("the answer is not the members of a federator")

// Page is an answer to the members query.
type Page struct {
	Installation string // of the federator that has answered
	Continue     string // of the next page; "" on the last one
	Partial      bool   // there may be other members
	Members      []Member
}

// Member is one of them.
type Member struct {
	Name    string // <namespace>/<name>, as it is called there: any text
	Labels  []aggregate.Label
	Version string // of its API server
	UID     string
	Cluster aggregate.Cluster
	Via     []string // installations between the one that answers and the member, the nearest first
	Scopes  string   // how many of its kinds are in which state: equal texts say that little has changed
	Facts   Facts
}

// Facts is what a member is known to serve.
type Facts struct {
	Serves []aggregate.Kind // sorted; nil where that is not known
	Silent []string         // groups of which it is not known, sorted
}

// Equal reports whether two facts are the same.
func (f *Facts) Equal(o *Facts) bool {
	return (f.Serves == nil) == (o.Serves == nil) && slices.Equal(f.Serves, o.Serves) && slices.Equal(f.Silent, o.Silent)
}

// Lacks reports whether the member is known not to serve a kind.
func (f *Facts) Lacks(kind aggregate.Kind) bool {
	if f == nil || f.Serves == nil {
		return false
	}
	_, group := kind.Split()
	_, serves := slices.BinarySearch(f.Serves, kind)
	return !serves && !slices.Contains(f.Silent, group)
}

// item is a member as it is in the answer.
type item struct {
	Name    string                  `json:"name"`
	Labels  map[string]string       `json:"labels"`
	Version string                  `json:"version"`
	Scopes  map[aggregate.State]int `json:"scopes"`
	Facts   *struct {
		UID     string `json:"uid"`
		Cluster struct {
			Annotations map[string]string `json:"annotations"`
			Paused      bool              `json:"paused"`
			Conditions  []struct {
				Type    string `json:"type"`
				Status  string `json:"status"`
				Reason  string `json:"reason"`
				Message string `json:"message"`
				Since   string `json:"since"`
			} `json:"conditions"`
			Class   string `json:"class"`
			Version string `json:"version"`
		} `json:"cluster"`
		Serves []aggregate.Kind `json:"serves"`
		Silent []string         `json:"silent"`
		Via    []string         `json:"via"`
	} `json:"facts"`
}

// Parse reads an answer to the members query with facts, of at most so many members. They are in order.
func Parse(body []byte, most int) (*Page, error) {
	p := &Page{}
	if err := p.read(body, most); err != nil {
		return nil, err
	}
	if !federation.ValidID(p.Installation) {
		return nil, fmt.Errorf("%w: it does not say which installation answers", ErrMalformed)
	}
	return p, nil
}

// read reads the answer a member at a time: small ones live as many times what was read.
func (p *Page) read(body []byte, most int) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ErrMalformed
	}
	kind := ""
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ErrMalformed
		}
		switch key {
		case "kind":
			err = d.Decode(&kind)
		case "installation":
			err = d.Decode(&p.Installation)
		case "continue":
			err = d.Decode(&p.Continue)
		case "partial":
			err = d.Decode(&p.Partial)
		case "items":
			if err := p.readMembers(d, most); err != nil {
				return err
			}
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return ErrMalformed
		}
	}
	if _, err := d.Token(); err != nil || kind != "MemberList" {
		return ErrMalformed
	}
	return nil
}

func (p *Page) readMembers(d *json.Decoder, most int) error {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return ErrMalformed
	}
	for d.More() {
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return ErrMalformed
		}
		m, err := parseMember(raw)
		n := len(p.Members)
		switch {
		case err != nil:
			return err
		case n == most:
			return fmt.Errorf("%w: it has more than the %d members that were asked for", ErrMalformed, most)
		case n > 0 && p.Members[n-1].Name >= m.Name:
			return fmt.Errorf("%w: its members are not in order", ErrMalformed)
		}
		p.Members = append(p.Members, m)
	}
	if _, err := d.Token(); err != nil {
		return ErrMalformed
	}
	return nil
}

func parseMember(raw []byte) (Member, error) {
	var i item
	if len(raw) > maxItem {
		return Member{}, fmt.Errorf("%w: a member has %d bytes", ErrMalformed, len(raw))
	}
	if json.Unmarshal(raw, &i) != nil || i.Facts == nil || i.Name == "" {
		return Member{}, fmt.Errorf("%w: a member cannot be read", ErrMalformed)
	}
	f := i.Facts
	labels, err := labelsOf(i.Labels)
	switch {
	case err != nil:
		return Member{}, err
	case len(f.UID) > maxText, len(f.Serves) > maxKinds, len(f.Silent) > maxKinds, len(f.Via) > maxLabels,
		slices.ContainsFunc(f.Via, func(id string) bool { return !federation.ValidID(id) }):
		return Member{}, fmt.Errorf("%w: a member's facts are too long", ErrMalformed)
	}
	m := Member{
		Name: i.Name, Labels: labels, Version: clip.Line(i.Version, maxText), UID: f.UID, Via: f.Via, Scopes: scopesText(i.Scopes),
		Cluster: aggregate.Cluster{Paused: f.Cluster.Paused, Class: clip.Text(f.Cluster.Class, maxText), Version: clip.Text(f.Cluster.Version, maxText)},
		Facts:   Facts{Serves: f.Serves, Silent: slices.Sorted(slices.Values(f.Silent))},
	}
	slices.Sort(m.Facts.Serves)
	bytes := 0
	for _, key := range slices.Sorted(maps.Keys(f.Cluster.Annotations)) {
		value := f.Cluster.Annotations[key]
		if bytes += len(key) + len(value); bytes > maxAnnotated {
			return Member{}, fmt.Errorf("%w: a member's annotations are too long", ErrMalformed)
		}
		m.Cluster.Annotations = append(m.Cluster.Annotations, aggregate.Label{Key: key, Value: value})
	}
	for _, c := range f.Cluster.Conditions {
		m.Cluster.Conditions = append(m.Cluster.Conditions, aggregate.Condition{
			Type: clip.Text(c.Type, maxText), Status: clip.Text(c.Status, maxText), Reason: clip.Text(c.Reason, maxText),
			Message: clip.Text(c.Message, maxMessage), Since: clip.Text(c.Since, maxText),
		})
	}
	slices.SortStableFunc(m.Cluster.Conditions, func(a, b aggregate.Condition) int { return strings.Compare(a.Type, b.Type) })
	m.Cluster.Conditions = slices.CompactFunc(m.Cluster.Conditions, func(a, b aggregate.Condition) bool { return a.Type == b.Type })
	m.Cluster.Conditions = m.Cluster.Conditions[:min(len(m.Cluster.Conditions), maxConditions)]
	return m, nil
}

// labelsOf returns labels by key. One that no API server would admit was made up.
func labelsOf(set map[string]string) ([]aggregate.Label, error) {
	if len(set) > maxLabels {
		return nil, fmt.Errorf("%w: a member has %d labels", ErrMalformed, len(set))
	}
	var labels []aggregate.Label
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(set[key])) > 0 {
			return nil, fmt.Errorf("%w: a member has a label that is none", ErrMalformed)
		}
		labels = append(labels, aggregate.Label{Key: key, Value: set[key]})
	}
	return labels, nil
}

func scopesText(scopes map[aggregate.State]int) string {
	var b strings.Builder
	for _, state := range slices.Sorted(maps.Keys(scopes)) {
		fmt.Fprintf(&b, "%s=%d ", state, scopes[state])
	}
	return b.String()
}

// MemberName returns what a member of a federator is called here, <federator>/<namespace>.<name>, which no other
// member of any federator is: namespaces have no dots. ok is false for one whose name does not make one.
func MemberName(federator, name string) (full string, ok bool) {
	namespace, rest, cut := strings.Cut(name, "/")
	joined := namespace + "." + rest
	if !cut || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(rest)) > 0 || len(validation.IsDNS1123Subdomain(joined)) > 0 {
		return "", false
	}
	return federator + "/" + joined, true
}

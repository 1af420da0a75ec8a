package reach

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// kindParameter names the kinds that a process is asked about.
const kindParameter = "kind"

// maxKinds bounds them in one request, whose line has them.
const maxKinds = 200

// Source is what a process knows of the members of an index.
type Source interface {
	// UID returns that of a member, and whether the caller may list anything in it.
	UID(member string) (uid string, visible bool)
	Grant(member string, kind aggregate.Kind) queryapi.MemberGrant
	// Failed returns why grants are not known, nil if they are.
	Failed() error
}

// part is what a process says of the members that it judges.
type part struct {
	Members []member               `json:"members,omitempty"` // that the caller may list anything in
	Grants  []queryapi.MemberGrant `json:"grants,omitempty"`  // each once
	Hidden  bool                   `json:"hidden,omitempty"`  // there are other members
}

// member is a member of a part.
type member struct {
	Name   string `json:"name"`
	UID    string `json:"uid,omitempty"`
	Grants []int  `json:"grants,omitempty"` // positions in those of the part, of the kinds in the order in which they were asked for
}

// ServePart serves what a Fleet asks of one process, and reports whether the request is that.
func ServePart(w http.ResponseWriter, r *http.Request, at *aggregate.Snapshot, source func() (Source, error)) (served bool, err error) {
	members, ok := queryapi.MembersInPart(r.Context(), at)
	if !ok {
		return false, nil
	}
	kinds := r.URL.Query()[kindParameter]
	if len(kinds) > maxKinds {
		return true, apierrors.NewBadRequest(fmt.Sprintf("there are %d kinds, and at most %d may be asked for", len(kinds), maxKinds))
	}
	from, err := source()
	if err != nil {
		return true, err
	}
	body, err := json.Marshal(partOf(from, members, kinds))
	if err == nil {
		err = from.Failed() // grants are unknown, not denied
	}
	if err != nil {
		return true, err
	}
	_, err = w.Write(body)
	return true, err
}

func partOf(from Source, members, kinds []string) *part {
	p := &part{}
	for _, name := range members {
		uid, visible := from.UID(name)
		if !visible {
			p.Hidden = true
			continue
		}
		m := member{Name: name, UID: uid}
		for _, kind := range kinds {
			m.Grants = append(m.Grants, p.put(from.Grant(name, aggregate.Kind(kind))))
		}
		p.Members = append(p.Members, m)
	}
	return p
}

// put returns the position of a grant: most members have the same ones.
func (p *part) put(g queryapi.MemberGrant) int {
	i := slices.IndexFunc(p.Grants, func(o queryapi.MemberGrant) bool { return o.All == g.All && slices.Equal(o.Namespaces, g.Namespaces) })
	if i < 0 {
		i, p.Grants = len(p.Grants), append(p.Grants, g)
	}
	return i
}

// Fleet is what a caller may read of the whole fleet. It belongs to one request.
type Fleet struct {
	fleet   queryapi.SharedFleet
	caller  queryapi.Caller
	asked   bool
	kinds   map[aggregate.Kind]bool
	members map[string]*reached
	hidden  bool
	absent  map[string]bool
}

// reached is a member that the caller may list anything in.
type reached struct {
	uid    string
	grants map[aggregate.Kind]queryapi.MemberGrant
}

// New returns a Fleet that nothing is known of yet.
func New(caller queryapi.Caller, fleet queryapi.SharedFleet) *Fleet {
	return &Fleet{fleet: fleet, caller: caller, kinds: map[aggregate.Kind]bool{}, members: map[string]*reached{}, absent: map[string]bool{}}
}

// Need has the members known, and grants of kinds.
func (f *Fleet) Need(ctx context.Context, kinds ...aggregate.Kind) error {
	var more []string
	for _, kind := range kinds {
		if !f.kinds[kind] {
			f.kinds[kind] = true
			more = append(more, string(kind))
		}
	}
	slices.Sort(more)
	for len(more) > 0 || !f.asked {
		now := more[:min(len(more), maxKinds)]
		if err := f.ask(ctx, now); err != nil {
			return err
		}
		f.asked, more = true, more[len(now):]
	}
	return nil
}

func (f *Fleet) ask(ctx context.Context, kinds []string) error {
	query := url.Values{}
	if len(kinds) > 0 {
		query[kindParameter] = kinds
	}
	parts, err := f.fleet.Ask(query)
	if err != nil {
		return err
	}
	absent, _, err := f.caller.VisibleIn(ctx, parts.Absent)
	if err != nil {
		return err
	}
	f.hidden = f.hidden || len(parts.Absent) > 0
	for _, name := range absent {
		f.absent[name] = true
	}
	for _, body := range parts.Bodies {
		var p part
		if err := json.Unmarshal(body, &p); err != nil {
			return fmt.Errorf("what may be read: a part: %w", err)
		}
		if err := f.add(&p, kinds); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) add(p *part, kinds []string) error {
	f.hidden = f.hidden || p.Hidden
	for _, m := range p.Members {
		now := f.members[m.Name]
		if now == nil || now.uid != m.UID {
			now = &reached{m.UID, map[aggregate.Kind]queryapi.MemberGrant{}}
			f.members[m.Name] = now
		}
		if len(m.Grants) != len(kinds) {
			return fmt.Errorf("what may be read: a part has %d grants of %s for %d kinds", len(m.Grants), m.Name, len(kinds))
		}
		for i, at := range m.Grants {
			if at < 0 || at >= len(p.Grants) {
				return fmt.Errorf("what may be read: a part has no grant %d", at)
			}
			now.grants[aggregate.Kind(kinds[i])] = p.Grants[at]
		}
	}
	return nil
}

// UID is as that of a Source.
func (f *Fleet) UID(member string) (uid string, visible bool) {
	m := f.members[member]
	if m == nil {
		return "", false
	}
	return m.uid, true
}

// Grant is as that of a Source, of kinds that were needed.
func (f *Fleet) Grant(member string, kind aggregate.Kind) queryapi.MemberGrant {
	if m := f.members[member]; m != nil {
		return m.grants[kind]
	}
	return queryapi.MemberGrant{}
}

// Failed is as that of a Source: what is not known was an error of Need.
func (*Fleet) Failed() error { return nil }

// All reports whether the caller may list something in each member of the fleet.
func (f *Fleet) All() bool { return !f.hidden }

// Absent returns the members, of those that the caller may read, that no process answers for, in order.
func (f *Fleet) Absent() []string {
	var names []string
	for name := range f.absent {
		if f.members[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

package binding

import (
	"fmt"

	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
)

// resolve checks the next version of a binding of a name, and returns it with its defaults.
func (n *Next) resolve(set *module.Set, name string, report func(path, format string, args ...any)) *Next {
	if n == nil {
		return nil
	}
	out := *n
	ofNext := func(path, format string, args ...any) {
		report("next."+path, "the next version: "+format, args...)
	}
	switch b := &out.Binding; {
	case b.Name != name:
		ofNext("name", "it is named %q, which is not the policy's name", b.Name)
	case b.Next != nil:
		ofNext("next", "it has a next version itself")
	default:
		b.resolve(set, ofNext)
	}
	if _, problems := out.route(); len(problems) > 0 {
		for _, p := range problems {
			ofNext(p.path, "%s: %v", p.path, p.err)
		}
	}
	return &out
}

// Route says in which members the next version of a policy has taken its place.
type Route struct {
	members []memberSelection
	whole   bool
}

// Route returns where the version has taken its place, which Validate has checked.
func (n *Next) Route() Route {
	r, _ := n.route()
	return r
}

func (n *Next) route() (Route, []problem) {
	var c checker
	r := Route{whole: n.Whole}
	for i := range n.Members {
		r.members = append(r.members, c.members(fmt.Sprintf("members[%d]", i), &n.Members[i]))
	}
	return r, c.problems
}

// Routing is a Route among the members of a snapshot. Immutable.
type Routing struct {
	whole   bool
	members MemberSet
}

// Among returns the routing of a snapshot.
func (r *Route) Among(s *fleetview.View) *Routing {
	out := &Routing{whole: r.whole, members: MemberSet{all: r.whole, names: map[string]bool{}}}
	for i := range r.members {
		if r.members[i].all() {
			out.members.all = true
		}
	}
	if out.members.all {
		return out
	}
	for m := range s.Members() {
		for i := range r.members {
			if r.members[i].has(m) {
				out.members.names[m.Name] = true
				break
			}
		}
	}
	return out
}

// Has reports whether the version is in effect for what is of a member, and for keys of views where it is "".
func (r *Routing) Has(member string) bool {
	if member == "" || r.whole {
		return r.whole
	}
	return r.members.Has(member)
}

// Whole reports whether the version is in effect everywhere.
func (r *Routing) Whole() bool { return r.whole }

// Some reports whether the version is in effect anywhere.
func (r *Routing) Some() bool { return r.whole || r.members.all || len(r.members.names) > 0 }

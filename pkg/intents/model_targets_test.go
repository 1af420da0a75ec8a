package intents_test

import (
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// truth is what those say who judge targets. It never changes.
type truth struct {
	drift map[policy.Ref]int
	say   map[string]map[string]bool // by process that can be asked: the members that it judges
}

// reveal has processes answer as it is now.
func (f *fleet) reveal() {
	now := &truth{drift: map[policy.Ref]int{}, say: map[string]map[string]bool{}}
	for m, names := range f.drift {
		for name, n := range names {
			now.drift[target(m, name)] = n
		}
	}
	for _, p := range f.processes {
		if p.alive && (!p.cut || p.leads.Load()) {
			now.say[p.id] = maps.Clone(p.judged)
		}
	}
	f.truth.Store(now)
}

// resolve says what targets are.
func (f *fleet) resolve(claims []enforce.Claim) (out []enforce.Resolution) {
	now, fleet := f.truth.Load(), f.now.Load()
	for _, c := range claims {
		is := enforce.Resolution{Why: "nobody says what it is"}
		version := fmt.Sprint(now.drift[c.Target])
		if now.say[fleet.Members[c.Target.Member].Judge][c.Target.Member] {
			if is.Why = "it is another one"; !slices.ContainsFunc(c.Bases, func(k enforce.KnownBy) bool { return k.Basis != version }) {
				is = enforce.Resolution{MemberUID: "uid-" + c.Target.Member, ResourceVersion: version}
			}
		}
		out = append(out, is)
	}
	return out
}

// hear tells a process of all objects.
func (f *fleet) hear(p *process) {
	p.knows = map[policy.Ref]int{}
	for m, names := range f.drift {
		for name, n := range names {
			p.knows[target(m, name)] = n
		}
	}
}

// elsewhere is an object whose subject is in the next member.
const elsewhere = "o2"

func (f *fleet) subjectOf(at policy.Ref) string {
	if at.Name != elsewhere {
		return at.Member
	}
	var n int
	if _, err := fmt.Sscanf(at.Member, "m%d", &n); err != nil {
		panic(err)
	}
	return fmt.Sprint("m", (n+1)%len(f.members))
}

// known is what a process knows of an object.
func (f *fleet) known(p *process, at policy.Ref) int {
	if p.judged[at.Member] {
		return f.drift[at.Member][at.Name]
	}
	return p.knows[at]
}

// intentsOf returns those of subjects in a member.
func (f *fleet) intentsOf(p *process, member string) (list []remediate.Intent) {
	for m := range f.members {
		for _, name := range []string{"o", "o0", "o1", elsewhere} {
			at := target(m, name)
			n := f.known(p, at)
			if n == 0 || f.subjectOf(at) != member {
				continue
			}
			i := remediate.Intent{
				Binding: thePolicy, Subject: policy.Subject{Ref: target(member, name)}, ResourceVersion: fmt.Sprint(n), Generation: fmt.Sprint("g", p.version),
				Remedy: policy.Remedy{Action: "patch", Target: at, Patch: []byte(` {"spec": "<&>"}`)},
			}
			if !p.judged[m] {
				i.ResourceVersion, i.Basis = "", i.ResourceVersion
			}
			list = append(list, i)
		}
	}
	return list
}

package facts

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/intents"
)

// Evidence returns what all processes find of the versions of a policy, which of names. Its error says whose evidence is not
// known, or is of something else: that of a part of the fleet is none.
func (c *Client) Evidence(policy, of string) (evidence.Part, error) {
	var sum *evidence.Part
	err := c.eachEvidence(func(id string, said *evidence.Said) (*evidence.Share, error) {
		s, ok := said.Policies[policy]
		if !ok || s.Of != of {
			return nil, compares(id, ok)
		}
		if sum == nil {
			sum = &evidence.Part{First: s.First, Complete: true}
		}
		sum.Add(&s.Part)
		return &s.Share, nil
	})
	if err != nil {
		return evidence.Part{}, err
	}
	return *sum, nil
}

// CommitEvidence returns what all processes find of what a commit of a source changes that has no FleetPolicy, as Evidence
// does.
func (c *Client) CommitEvidence(source, of string) (evidence.Commit, error) {
	var sum *evidence.Commit
	err := c.eachEvidence(func(id string, said *evidence.Said) (*evidence.Share, error) {
		s, ok := said.Commits[source]
		switch {
		case !ok || s.Of != of || s.Older:
			return nil, compares(id, ok)
		case sum == nil:
			sum = &evidence.Commit{Of: of, Parts: maps.Clone(s.Parts)}
			return &s.Share, nil
		}
		if !sameBindings(sum.Parts, s.Parts) { // one knows of a FleetPolicy of which another does not, say
			return nil, fmt.Errorf("process %q judges other policies beside the FleetPolicies", id)
		}
		for name, p := range s.Parts {
			both := sum.Parts[name]
			both.Add(&p.Part)
			sum.Parts[name] = both
		}
		return &s.Share, nil
	})
	if err != nil {
		return evidence.Commit{}, err
	}
	return *sum, nil
}

func sameBindings(a, b map[string]evidence.CommitPart) bool {
	return maps.EqualFunc(a, b, func(x, y evidence.CommitPart) bool { return x.Added == y.Added && x.First == y.First })
}

func compares(process string, other bool) error {
	if other {
		return fmt.Errorf("process %q compares other versions", process)
	}
	return fmt.Errorf("process %q has not compared the versions yet", process)
}

// eachEvidence passes on what each process says. take returns what it is of: all together must be of the fleet, each
// member by its judge, and each key once.
func (c *Client) eachEvidence(take func(id string, said *evidence.Said) (*evidence.Share, error)) error {
	fleet := c.opts.Fleet()
	if fleet == nil {
		return errors.New("it is not known which processes there are")
	}
	processes := everybody(fleet)
	shares, err := c.sharesOf(fleet, processes)
	if err != nil {
		return err
	}
	var keys []string
	for n, id := range processes {
		said, err := c.saidBy(fleet, id)
		if err != nil {
			return err
		}
		share, err := take(id, said)
		switch {
		case err != nil:
			return err
		case share.Members != shares[id]:
			return fmt.Errorf("process %q has not compared them on the members that it is to judge, and no others", id)
		case share.Moving:
			return fmt.Errorf("process %q says that keys of views change their owner", id)
		case n > 0 && !slices.Equal(share.Keys, keys):
			return fmt.Errorf("processes %q and %q do not share the keys of views in one way", processes[0], id)
		}
		keys = share.Keys
	}
	return nil
}

// saidBy returns what a process has said, nil for nothing.
func (c *Client) saidBy(fleet *intents.Fleet, id string) (*evidence.Said, error) {
	var said *evidence.Said
	if id == fleet.Self {
		if c.opts.Local.Evidence != nil {
			said = c.opts.Local.Evidence()
		}
	} else {
		k, err := c.fresh(id)
		if err != nil {
			return nil, err
		}
		said = k.Evidence
	}
	if said == nil {
		return nil, fmt.Errorf("process %q has not compared any versions yet", id)
	}
	return said, nil
}

// shares are the digests of the members that processes judge by a fleet, by process.
type shares struct {
	of       *intents.Fleet
	digests  map[string]string
	unjudged string // a member that none of them judges, "" if there is none
}

// sharesOf returns which members each process is to judge, or an error where nobody judges one.
func (c *Client) sharesOf(fleet *intents.Fleet, processes []string) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shares.of != fleet {
		members := map[string][]string{}
		next := shares{of: fleet, digests: map[string]string{}}
		for name, m := range fleet.Members {
			if members[m.Judge] = append(members[m.Judge], name); !slices.Contains(processes, m.Judge) && (next.unjudged == "" || name < next.unjudged) {
				next.unjudged = name
			}
		}
		for _, id := range processes {
			next.digests[id] = evidence.Digest(slices.Values(members[id]))
		}
		c.shares = next
	}
	if c.shares.unjudged != "" {
		return nil, fmt.Errorf("no process judges member %q", c.shares.unjudged)
	}
	return c.shares.digests, nil
}

// everybody returns all processes of a fleet, sorted: those that live, and those that something is assigned to.
func everybody(fleet *intents.Fleet) []string {
	all := slices.AppendSeq([]string{fleet.Self}, maps.Keys(fleet.Peers))
	all = append(all, fleet.Processes...)
	slices.Sort(all)
	return slices.Compact(all)
}

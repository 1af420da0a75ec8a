package facts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

const (
	// Interval is how often facts about members are asked for, and MaxAge how long they count.
	Interval = time.Second / 2
	MaxAge   = 2 * time.Second
	// AskTimeout is how long a process may take to answer.
	AskTimeout = time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 64 << 20
	// maxOwners bounds the targets whose owners are remembered.
	maxOwners = 200_000
)

// ClientOptions configure a Client. All are required.
type ClientOptions struct {
	Local Local
	Fleet func() *intents.Fleet // as in intents.ReceiverOptions
	Lease func() (until time.Time, err error)
}

// Client is what the leader's Dispatcher asks about the members of all processes. Its methods have the signatures of
// remediate.Options.
type Client struct {
	opts ClientOptions

	mu     sync.Mutex
	known  map[string]*known // by process
	silent map[string]time.Time
	owners map[policy.Ref]owned
	shares shares // of the newest fleet
}

// known is what a process has said.
type known struct {
	at time.Time // when it was asked
	memberFacts
}

type owned struct {
	at time.Time
	remediate.Ownership
}

// NewClient returns a Client that knows nothing of others before Run.
func NewClient(opts ClientOptions) (*Client, error) {
	if opts.Fleet == nil || opts.Lease == nil {
		return nil, errors.New("facts: Fleet and Lease are required")
	}
	if err := opts.Local.validate(); err != nil {
		return nil, err
	}
	return &Client{opts: opts, known: map[string]*known{}, silent: map[string]time.Time{}, owners: map[policy.Ref]owned{}}, nil
}

// Run asks all other processes while this one leads, until the context ends.
func (c *Client) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	busy := map[string]chan struct{}{}
	for {
		if _, err := c.opts.Lease(); err == nil {
			if fleet := c.opts.Fleet(); fleet != nil {
				for id, peer := range fleet.Peers {
					select {
					case <-busy[id]:
					default:
						if busy[id] != nil {
							continue // it takes its time
						}
					}
					done := make(chan struct{})
					busy[id] = done
					asking.Go(func() {
						defer close(done)
						c.ask(peer)
					})
				}
			}
		}
		if err := sleep.For(ctx, Interval); err != nil {
			return err
		}
	}
}

func (c *Client) ask(peer intents.Peer) {
	k := &known{at: time.Now()}
	if get(peer, membersPath, nil, &k.memberFacts) != nil || k.Process != peer.ID {
		return // what is known grows old
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[peer.ID] = k
}

// get asks a process.
func get(peer intents.Peer, path string, question, answer any) error {
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, peer.URL+path, body)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: peer.Client.Transport, Timeout: AskTimeout}).Do(request)
	if err != nil {
		return fmt.Errorf("process %s: %w", peer.ID, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("process %s answers %s", peer.ID, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("process %s: %w", peer.ID, err)
	}
	return nil
}

// fresh returns what a process has said not long ago.
func (c *Client) fresh(process string) (*known, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[process]
	if k == nil {
		return nil, fmt.Errorf("process %q has said nothing", process)
	}
	if age := time.Since(k.at); age > MaxAge {
		return nil, fmt.Errorf("process %q has said nothing for more than %v", process, MaxAge)
	}
	return k, nil
}

// factsOf returns what another process says of a member that it judges.
func (c *Client) factsOf(fleet *intents.Fleet, member string) (fact, error) {
	judge, peer := fleet.JudgeOf(member)
	if peer == nil {
		return fact{}, fmt.Errorf("member %q: process %q, which judges it, is not within reach", member, judge)
	}
	k, err := c.fresh(judge)
	if err != nil {
		return fact{}, fmt.Errorf("member %q: %w", member, err)
	}
	f, judged := k.Members[member]
	if !judged {
		return fact{}, fmt.Errorf("member %q: process %q does not judge it yet", member, judge)
	}
	return f, nil
}

// Held returns why nothing may be written to a member now.
func (c *Client) Held(member string) error {
	fleet := c.opts.Fleet()
	if fleet.Judges(member) {
		return c.opts.Local.Held(member)
	}
	f, err := c.factsOf(fleet, member)
	if err == nil && f.Held != "" {
		err = errors.New(f.Held)
	}
	return err
}

// MemberAway returns why it is not known what is in a member.
func (c *Client) MemberAway(member string) error {
	fleet := c.opts.Fleet()
	if fleet.Judges(member) {
		return c.opts.Local.MemberAway(member)
	}
	f, err := c.factsOf(fleet, member)
	if err == nil && f.Away != "" {
		err = errors.New(f.Away)
	}
	return err
}

// MemberUID returns the UID of what describes a member, "" where that is not known, or there is none.
func (c *Client) MemberUID(member string) string {
	fleet := c.opts.Fleet()
	if fleet.Judges(member) {
		return c.opts.Local.MemberUID(member)
	}
	f, err := c.factsOf(fleet, member)
	if err != nil {
		return ""
	}
	return f.UID
}

// Away returns how many members are away, and how many there are. Those are away of which nobody can be asked.
func (c *Client) Away() (away, members int) {
	fleet := c.opts.Fleet()
	if fleet == nil {
		return 1, 1 // all of those that there are
	}
	for member := range fleet.Members {
		members++
		if c.MemberAway(member) != nil {
			away++
		}
	}
	return away, members
}

// summaries returns what each process says of its verdicts of a policy, and which processes do not know the policy. Its error
// is that of one that has said nothing that counts.
func (c *Client) summaries(fleet *intents.Fleet, name string) (said map[string]Summary, ignorant []string, err error) {
	if fleet == nil {
		return nil, nil, errors.New("it is not known which processes there are")
	}
	own := c.opts.Local.Summaries()
	if own == nil {
		return nil, nil, errors.New("this process has no verdicts yet")
	}
	said = map[string]Summary{}
	for _, id := range everybody(fleet) {
		all := own
		if id != fleet.Self {
			k, err := c.fresh(id)
			if err != nil {
				return nil, nil, err
			}
			if all = k.Summaries; all == nil {
				return nil, nil, fmt.Errorf("process %q has no verdicts yet", id)
			}
		}
		if s, ok := all[name]; ok {
			said[id] = s
		} else {
			ignorant = append(ignorant, id)
		}
	}
	return said, ignorant, nil
}

// Summary returns the verdicts of a policy on the whole fleet, or why they are not known: never those of a part of it.
func (c *Client) Summary(name string) (Summary, error) {
	fleet := c.opts.Fleet()
	said, ignorant, err := c.summaries(fleet, name)
	switch {
	case err != nil:
		return Summary{}, err
	case len(ignorant) > 0:
		return Summary{}, fmt.Errorf("process %q does not know the policy yet", ignorant[0])
	}
	return merge(fleet, said), nil
}

// merge merges what processes say: of each member what its judge does.
func merge(fleet *intents.Fleet, said map[string]Summary) Summary {
	out := Summary{Counts: map[string]Counts{}, Protected: map[string]int{}, Synced: true}
	for _, id := range slices.Sorted(maps.Keys(said)) {
		s := said[id]
		out.Synced = out.Synced && s.Synced
		out.add(&s.Remedies)
		if out.Problem == "" && s.Problem != "" {
			out.Problem = s.Problem
		}
		for member, counts := range s.Counts {
			switch {
			case member == "":
				sum := out.Counts[""]
				for n := range counts {
					sum[n] += counts[n]
				}
				out.Counts[""] = sum
			case fleet.Members[member].Judge == id:
				out.Counts[member] = counts
			}
		}
		for member, n := range s.Protected {
			out.Protected[member] += n
		}
	}
	return out
}

// Verdicts returns how many violations and Unknown verdicts a policy has, by member; nil while that is not known of all.
func (c *Client) Verdicts(name string) map[string]remediate.Verdicts {
	fleet := c.opts.Fleet()
	said, ignorant, err := c.summaries(fleet, name)
	if err != nil || len(ignorant) > 0 && len(said) > 0 {
		return nil
	}
	out := map[string]remediate.Verdicts{}
	for member, counts := range merge(fleet, said).Counts {
		n := counts.Policy()
		out[member] = remediate.Verdicts{Violations: n.Violations, Unknown: n.Unknown + n.Errors}
	}
	return out
}

package delivery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/notify/sinks"
)

// Dimension is what transitions of one message have in common.
type Dimension string

// The dimensions.
const (
	ByPolicy     Dimension = "Policy"
	ByMember     Dimension = "Member"
	BySeverity   Dimension = "Severity"
	ByKind       Dimension = "Kind"
	ByNamespace  Dimension = "Namespace"
	ByObject     Dimension = "Object"
	ByType       Dimension = "Type"
	ByTransition Dimension = "Transition"
)

var dimensions = map[Dimension]func(*history.Record) string{
	ByPolicy:     func(r *history.Record) string { return r.Policy },
	ByMember:     func(r *history.Record) string { return r.Member },
	BySeverity:   func(r *history.Record) string { return r.Severity },
	ByKind:       func(r *history.Record) string { return string(r.Kind) },
	ByNamespace:  func(r *history.Record) string { return r.Namespace },
	ByObject:     object,
	ByType:       func(r *history.Record) string { return typeNames[r.Type] },
	ByTransition: selection.Transition,
}

// object names what a transition is about. A key of a view, which is text of objects, is not shown.
func object(r *history.Record) string {
	if r.Type == history.Verdict && r.Subject != "" {
		return history.Key(r.Member, string(r.Kind), r.Namespace, r.Name, r.UID, hash(r.Subject))
	}
	return history.Key(r.Member, string(r.Kind), r.Namespace, r.Name, r.UID)
}

// Grouping makes one message of several transitions.
type Grouping struct {
	By []Dimension // what the transitions of a message have in common; none: nothing
	// Wait is how long transitions are collected after the first, and Interval how much later than the
	// messages before it the next are sent at least.
	Wait, Interval time.Duration
	// Messages is how many messages a collection makes at most, besides one of what is in none of them.
	Messages int
}

func (g *Grouping) validate() error {
	for _, by := range g.By {
		if dimensions[by] == nil {
			return fmt.Errorf("grouping by %q is not known", by)
		}
	}
	if g.Wait < 0 || g.Interval < 0 || g.Messages < 1 {
		return fmt.Errorf("grouping needs a wait (%v) and an interval (%v) that are not negative, and messages (%d)", g.Wait, g.Interval, g.Messages)
	}
	return nil
}

const (
	maxExamples = 10      // transitions that a message of several has
	maxCollect  = 200_000 // transitions of a collection
	// Bytes of text of objects in the examples of a message, which receivers bound, and of a collection.
	messageText = 64 << 10
	collectText = 16 << 20
)

// Group is the data of an event about several transitions.
type Group struct {
	Summary     string               `json:"summary"`
	Group       map[Dimension]string `json:"group,omitempty"` // what they have in common
	Transitions int                  `json:"transitions"`
	Objects     int                  `json:"objects"`
	Members     int                  `json:"members"`
	Severities  map[string]int       `json:"severities,omitempty"`
	Groups      int                  `json:"groups,omitempty"` // that are counted here, and have no message of their own
	First       time.Time            `json:"first"`
	Last        time.Time            `json:"last"`
	Log         string               `json:"log"` // with From and To, where they are in the history
	From        uint64               `json:"from"`
	To          uint64               `json:"to"`
	Examples    []Transition         `json:"examples,omitempty"` // the first
}

// group is a message in the making.
type group struct {
	layer, place int // messages are in the order of both
	key          string
	of           []string // values of the dimensions
	data         Group
	objects      map[string]bool
	members      map[string]bool
	types        map[string]bool
	transitions  map[string]bool
	digest       uint64 // of the positions: a collection of which something has expired makes other messages
	counted      bool   // it has no examples
	text         int    // bytes in the examples
}

// collector makes messages of the transitions of a collection. A transition of an object is in no earlier message than those of the
// same object before it: a message is divided where that would be so.
type collector struct {
	opts   *Options
	groups map[string]*group
	order  []*group
	last   map[string]*group // of each object
	gaps   []history.Record
	n      int
	text   int   // bytes in all examples
	layers []int // how many groups there are in each
}

func newCollector(opts *Options) *collector {
	return &collector{opts: opts, groups: map[string]*group{}, last: map[string]*group{}}
}

func (c *collector) add(r *history.Record) {
	c.n++
	if r.Type == history.Gap {
		c.gaps = append(c.gaps, *r)
		return
	}
	by := c.opts.Grouping.By
	of := make([]string, len(by))
	for i, d := range by {
		of[i] = dimensions[d](r)
	}
	key, about := history.Key(of...), object(r)
	before, layer := c.last[about], 0
	if before != nil {
		layer = before.layer
	}
	var g *group
	for ; ; layer++ {
		at := strconv.Itoa(layer) + " " + key
		if g = c.groups[at]; g == nil {
			g = &group{layer: layer, place: len(c.order), key: key, of: of, objects: map[string]bool{}, members: map[string]bool{}, types: map[string]bool{}, transitions: map[string]bool{}}
			c.groups[at] = g
			c.order = append(c.order, g)
			c.place(g)
		}
		if before == nil || g == before || layer > before.layer || g.place > before.place {
			break
		}
	}
	c.last[about] = g
	g.add(r, about)
	c.example(g, r)
}

// place counts a group that was made. One that is in no case among those with a message of their own has no examples.
func (c *collector) place(g *group) {
	for len(c.layers) <= g.layer {
		c.layers = append(c.layers, 0)
	}
	before := c.layers[g.layer]
	if g.layer > 0 {
		before += c.layers[0] + g.layer - 1 // at least: none between is empty
	}
	c.layers[g.layer]++
	g.counted = before >= c.opts.Grouping.Messages
}

// example adds a transition to the first of its group, with its text as far as there is room.
func (c *collector) example(g *group, r *history.Record) {
	if g.counted || len(g.data.Examples) == maxExamples {
		return
	}
	bytes := 0
	if c.opts.IncludeText {
		bytes = textOf(r)
	}
	text := c.opts.IncludeText && g.text+bytes <= messageText && c.text+bytes <= collectText
	if text {
		g.text, c.text = g.text+bytes, c.text+bytes
	}
	g.data.Examples = append(g.data.Examples, transitionOf(r, text))
}

// textOf returns how many bytes of text of objects a transition has.
func textOf(r *history.Record) int {
	n := len(r.Violation) + len(r.Message) + len(r.Subject)
	for i := range r.Changes {
		n += len(r.Changes[i].Path) + len(r.Changes[i].Before) + len(r.Changes[i].After)
	}
	return n
}

func (g *group) add(r *history.Record, about string) {
	g.digest = (g.digest ^ r.Position) * 0x100000001b3
	d := &g.data
	d.Transitions++
	if d.First.IsZero() {
		d.First = r.Time.UTC()
	}
	d.Last = r.Time.UTC()
	if r.Severity != "" {
		if d.Severities == nil {
			d.Severities = map[string]int{}
		}
		d.Severities[r.Severity]++
	}
	g.objects[about] = true
	if r.Member != "" {
		g.members[r.Member] = true
	}
	g.types[typeNames[r.Type]], g.transitions[selection.Transition(r)] = true, true
}

// messages returns those of the collection from a position, exclusive, to another.
func (c *collector) messages(log string, after, to uint64) ([]sinks.Message, error) {
	slices.SortFunc(c.order, func(a, b *group) int {
		if a.layer != b.layer {
			return a.layer - b.layer
		}
		return a.place - b.place
	})
	own, others := c.order, []*group(nil)
	if most := c.opts.Grouping.Messages; len(own) > most {
		own, others = own[:most], own[most:]
	}
	out := make([]sinks.Message, 0, len(c.gaps)+len(own)+1)
	add := func(m sinks.Message, err error) error {
		out = append(out, m)
		return err
	}
	if len(c.gaps) > maxExamples { // as after a restart that finds nothing of what was kept
		if err := add(c.manyGaps(log, after, to)); err != nil {
			return nil, err
		}
	} else {
		for i := range c.gaps {
			if err := add(single(c.opts, &c.gaps[i])); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range own {
		if err := add(c.message(g, log, after, to)); err != nil {
			return nil, err
		}
	}
	if len(others) > 0 {
		g := merged(others)
		if err := add(c.message(g, log, after, to)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// manyGaps is the message of gaps that are too many for one each.
func (c *collector) manyGaps(log string, after, to uint64) (sinks.Message, error) {
	d := Group{Transitions: len(c.gaps), First: c.gaps[0].Time.UTC(), Last: c.gaps[len(c.gaps)-1].Time.UTC(), Log: log, From: after + 1, To: to}
	members := map[string]bool{}
	of := []string{c.opts.UID, c.opts.Version, log, strconv.FormatUint(after, 10), strconv.FormatUint(to, 10), "gaps"}
	for i := range c.gaps {
		r := &c.gaps[i]
		of = append(of, r.Key)
		if r.Member != "" {
			members[r.Member] = true
		}
		if i < maxExamples {
			d.Examples = append(d.Examples, transitionOf(r, c.opts.IncludeText))
		}
	}
	d.Members = len(members)
	d.Summary = fmt.Sprintf("%d gaps in the history, in %d member(s)", d.Transitions, d.Members)
	return message(c.opts, hash(of...), GapType, "", d.Last, &d)
}

// merged is the group of several that have no message of their own. It has no examples: they would not be in their order.
func merged(groups []*group) *group {
	m := &group{key: "others", objects: map[string]bool{}, members: map[string]bool{}, types: map[string]bool{}, transitions: map[string]bool{}}
	m.data.Groups, m.data.First = len(groups), groups[0].data.First
	for _, g := range groups {
		m.data.Transitions += g.data.Transitions
		m.digest = (m.digest ^ g.digest) * 0x100000001b3
		for severity, n := range g.data.Severities {
			if m.data.Severities == nil {
				m.data.Severities = map[string]int{}
			}
			m.data.Severities[severity] += n
		}
		for from, into := range map[*map[string]bool]map[string]bool{&g.objects: m.objects, &g.members: m.members, &g.types: m.types, &g.transitions: m.transitions} {
			for k := range *from {
				into[k] = true
			}
		}
		if g.data.First.Before(m.data.First) {
			m.data.First = g.data.First
		}
		if g.data.Last.After(m.data.Last) {
			m.data.Last = g.data.Last
		}
	}
	return m
}

func (c *collector) message(g *group, log string, after, to uint64) (sinks.Message, error) {
	d := g.data
	d.Objects, d.Members, d.Log, d.From, d.To = len(g.objects), len(g.members), log, after+1, to
	of, transition := only(g.types), only(g.transitions)
	var subject []string
	if g.of != nil {
		d.Group = map[Dimension]string{}
		for i, by := range c.opts.Grouping.By {
			if g.of[i] != "" {
				d.Group[by] = g.of[i]
			}
			if g.of[i] != "" && by != ByType && by != ByTransition {
				subject = append(subject, g.of[i])
			}
		}
	}
	d.Summary = summary(&d, of, transition)
	id := hash(c.opts.UID, c.opts.Version, log, strconv.FormatUint(after, 10), strconv.FormatUint(to, 10), g.key, strconv.FormatUint(g.digest, 16), strconv.Itoa(d.Groups))
	return message(c.opts, id, eventType(of, transition), strings.Join(subject, "/"), d.Last, &d)
}

// only returns what is the only one, "" where there are several.
func only(set map[string]bool) string {
	if len(set) == 1 {
		for one := range set {
			return one
		}
	}
	return ""
}

// summary says in words what has happened.
func summary(d *Group, of, transition string) string {
	var b strings.Builder
	switch {
	case of == "":
		fmt.Fprintf(&b, "%d transitions", d.Transitions)
	case transition == "":
		fmt.Fprintf(&b, "%d transitions of type %s", d.Transitions, of)
	default:
		fmt.Fprintf(&b, "%d × %s %s", d.Transitions, of, transition)
	}
	if p := d.Group[ByPolicy]; p != "" {
		fmt.Fprintf(&b, " by policy %s", p)
	}
	if m := d.Group[ByMember]; m != "" {
		fmt.Fprintf(&b, " in member %s", m)
	} else if d.Members > 0 {
		fmt.Fprintf(&b, " in %d member(s)", d.Members)
	}
	if d.Groups > 0 {
		fmt.Fprintf(&b, ", in %d groups that are too many for messages of their own", d.Groups)
	}
	return b.String()
}

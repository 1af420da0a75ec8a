package persistence

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// What a batch consists of, each with a tag before it.
const (
	tagMember       byte = 'm' // what is known of the member
	tagMemberCommit byte = 'n' // a commit that changed nothing else
	tagCommit       byte = 'k' // a commit of a scope
	tagState        byte = 's' // a scope after the batch
)

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendRevisions(dst []byte, c *aggregate.Commit) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.Since))
	dst = binary.AppendUvarint(dst, uint64(c.From))
	return binary.AppendUvarint(dst, uint64(c.To))
}

// appendState appends a scope without its objects.
func appendState(dst []byte, kind aggregate.Kind, status aggregate.Status, parts []aggregate.Part) []byte {
	dst = appendText(dst, string(kind))
	dst = binary.AppendUvarint(dst, uint64(status.State))
	dst = appendText(dst, status.Reason)
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	for _, p := range parts {
		dst = appendText(appendText(appendText(dst, p.Namespace), p.ResourceVersion), p.Served)
	}
	return dst
}

func appendMember(dst []byte, m *aggregate.Member) ([]byte, error) {
	kept := *m
	kept.Serves, kept.Silent, kept.GivenUp, kept.Role = nil, nil, false, aggregate.Judge // that is this process's to find out
	text, err := json.Marshal(kept)
	if err != nil {
		return dst, fmt.Errorf("member %q: %w", m.Name, err)
	}
	return appendText(dst, string(text)), nil
}

// payload is bytes to decode. The first error stays, and ends the bytes.
type payload struct {
	rest []byte
	err  error
}

func (p *payload) fail(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %w", what, frames.ErrDoubt)
	}
	p.rest = nil
}

func (p *payload) uvarint(what string) uint64 {
	n, size := binary.Uvarint(p.rest)
	if size <= 0 {
		p.fail(what)
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

// count returns a number of things that have a byte at least.
func (p *payload) count(what string) int {
	n := p.uvarint(what)
	if n > uint64(len(p.rest)) {
		p.fail(what)
		return 0
	}
	return int(n)
}

func (p *payload) byte(what string) byte {
	if len(p.rest) == 0 {
		p.fail(what)
		return 0
	}
	b := p.rest[0]
	p.rest = p.rest[1:]
	return b
}

func (p *payload) text(what string) string {
	n := p.count(what)
	s := string(p.rest[:n])
	p.rest = p.rest[n:]
	return s
}

func (p *payload) revision(what string) aggregate.Revision {
	n := p.uvarint(what)
	if n > 1<<53 {
		p.fail(what)
	}
	return aggregate.Revision(n)
}

func (p *payload) revisions() (since, from, to aggregate.Revision) {
	return p.revision("a revision"), p.revision("a revision"), p.revision("a revision")
}

func (p *payload) state() (kind aggregate.Kind, status aggregate.Status, parts []aggregate.Part) {
	kind = aggregate.Kind(p.text("a kind"))
	state := p.uvarint("a state")
	if state > uint64(aggregate.OverBudget) {
		p.fail("a state")
	}
	status = aggregate.Status{State: aggregate.State(state), Reason: p.text("a reason")}
	for range p.count("the parts of a scope") {
		part := aggregate.Part{Namespace: p.text("a namespace"), ResourceVersion: p.text("a resourceVersion"), Served: p.text("how it was served")}
		if len(parts) > 0 && strings.Compare(parts[len(parts)-1].Namespace, part.Namespace) >= 0 {
			p.fail("the order of a scope's parts")
			return kind, status, nil
		}
		parts = append(parts, part)
	}
	return kind, status, parts
}

func (p *payload) member() (m aggregate.Member) {
	text := p.text("a member")
	if p.err == nil {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			p.fail("a member")
		}
	}
	return m
}

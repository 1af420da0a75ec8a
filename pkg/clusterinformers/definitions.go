package clusterinformers

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// definitionKind is the kind of what defines custom kinds.
const definitionKind = aggregate.Kind("CustomResourceDefinition.apiextensions.k8s.io")

// serving is what determines the content of unchanged objects of a kind: defaulting and
// conversion, by API server version and CRD generation.
type serving struct{ server, definition string }

// differs reports whether another is known than was known before.
func (s serving) differs(now serving) bool {
	other := func(before, after string) bool { return before != "" && after != "" && before != after }
	return other(s.server, now.server) || other(s.definition, now.definition)
}

// fillFrom returns what is known of both.
func (s serving) fillFrom(now serving) serving {
	if s.server == "" {
		s.server = now.server
	}
	if s.definition == "" {
		s.definition = now.definition
	}
	return s
}

// text returns what is known, with the cluster that serves it, "" where the cluster is not known.
func (s serving) text(cluster string) string {
	if cluster == "" || s.server == "" {
		return ""
	}
	return cluster + " " + s.server + " " + s.definition
}

// definitionDelay is how long an API server may take until it serves a kind by a
// changed CRD, after the CRD's watch event.
const definitionDelay = time.Second

// definitions knows the generations of a member's definitions. It is safe for concurrent
// use.
type definitions struct {
	mu         sync.Mutex
	byRevision map[aggregate.Revision]generation // by the revision of the definition's last change
	current    map[aggregate.Kind]string         // the generations, as last read
}

type generation struct {
	kind aggregate.Kind
	text string // of UID and generation
}

// refresh reads the generation of each kind's definition that is held of a member.
func (d *definitions) refresh(index *aggregate.Index, member string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = map[aggregate.Kind]string{}
	objects, err := index.Newest().List(aggregate.Query{Kind: definitionKind, Members: []string{member}})
	if err != nil {
		return
	}
	read := map[aggregate.Revision]generation{}
	var body []byte
	for o := range objects {
		g, known := d.byRevision[o.Revision()]
		if !known {
			if body, err = o.AppendBody(body[:0]); err != nil {
				continue
			}
			g = generationOf(o.UID(), body)
		}
		read[o.Revision()] = g
		if g.kind != "" {
			d.current[g.kind] = g.text
		}
	}
	d.byRevision = read
}

// generation returns the generation of a kind's definition, as last read.
func (d *definitions) generation(kind aggregate.Kind) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current[kind]
}

func generationOf(uid string, body []byte) generation {
	var crd struct {
		Metadata struct{ Generation int64 }
		Spec     struct {
			Group string
			Names struct{ Kind string }
		}
	}
	if err := json.Unmarshal(body, &crd); err != nil || crd.Spec.Names.Kind == "" {
		return generation{}
	}
	return generation{aggregate.MakeKind(crd.Spec.Names.Kind, crd.Spec.Group), uid + "/" + strconv.FormatInt(crd.Metadata.Generation, 10)}
}

// currentServing is how the member serves a kind by what was read last.
func (mb *member) currentServing(kind aggregate.Kind) serving {
	now := serving{definition: mb.definitions.generation(kind)}
	if v := mb.version.Load(); v != nil {
		now.server = *v
	}
	return now
}

// learnDefinitions reads the definitions, for informers that were started when theirs
// were not known yet: a change after this is noticed, whenever the loop looks.
func (mb *member) learnDefinitions() {
	mb.definitions.refresh(mb.manager.opts.Index, mb.name)
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for kind, r := range mb.informers {
		if now := mb.currentServing(kind); !r.served.differs(now) {
			r.setServed(r.served.fillFrom(now))
		}
	}
}

// relistChanged ends the informers of kinds that the member serves otherwise than
// when they were started, so that they are listed again: objects that have not
// been written since may have other content at the version that is held. It reports whether
// there were any.
func (mb *member) relistChanged() bool {
	mb.definitions.refresh(mb.manager.opts.Index, mb.name)
	var ended []*runningInformer
	mb.mu.Lock()
	for kind, r := range mb.informers {
		switch now := mb.currentServing(kind); {
		case !r.served.differs(now):
			r.setServed(r.served.fillFrom(now))
			r.changedAt = time.Time{}
		case r.changedAt.IsZero():
			r.changedAt = time.Now()
			mb.triggerDiscovery() // to look again soon
		case time.Since(r.changedAt) >= definitionDelay:
			mb.endLocked(kind, r)
			ended = append(ended, r)
			mb.relisting[kind] = true
		}
	}
	mb.mu.Unlock()
	for _, r := range ended {
		mb.log.Info("relisting the kind: its definition or the API server changed", "kind", r.kind)
		<-r.done
	}
	return len(ended) > 0
}

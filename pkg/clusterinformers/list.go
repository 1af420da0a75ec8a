package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// chargeEvery is after how many items of a page they are charged for.
const chargeEvery = 256

// listTimeout bounds one page of a list.
const listTimeout = 2 * time.Minute

// listPage lists one page, for members that cannot stream a list, or where what is listed is too
// large to come at once. An object that is held as it is listed is not encoded again.
func (p *listWatch) listPage(ctx context.Context, a *memberclient.Client) (*page, error) {
	i := p.informer
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	opts := metav1.ListOptions{ResourceVersion: p.request.ResourceVersion, Continue: p.request.Continue, Limit: p.request.Limit}
	scope := ""
	body, encoding, err := p.do(memberclient.WithScope(ctx, &scope), a, &opts)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	limit := i.member.manager.opts.Budget.ResponseBytes
	large, release := p.largeList(ctx)
	defer release()
	raw, charged, err := p.readPage(body, limit, large)
	defer func() { _ = p.chargeResponse(-charged) }() //nolint:errcheck // less is never refused
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("list page of more than %d bytes: %w", limit, decode.ErrTooLarge)
	}
	i.contact(time.Now())
	g, err := p.decodePage(raw, encoding)
	if g != nil {
		g.scope = scope
	}
	return g, err
}

// slotPatience is how long a first list that is large waits for others: API servers drop
// watchers that do not read.
const slotPatience = 2 * time.Second

// largeList returns what is called whenever a large list has brought more: the first time it waits
// for the right to read one, for a while, and then goes on without.
func (p *listWatch) largeList(ctx context.Context) (progress, release func()) {
	var slot *quota.Slot
	wait := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(ctx, slotPatience)
		defer cancel()
		slot, _ = p.informer.member.manager.slots.Acquire(ctx, &p.informer.member.listSlots) //nolint:errcheck // nil goes as well
	})
	return func() { wait(); slot.Progress() }, func() { slot.Release() }
}

func (p *listWatch) decodePage(raw []byte, encoding decode.Encoding) (*page, error) {
	i := p.informer
	d, err := i.decoder(encoding)
	if err != nil {
		return nil, err
	}
	out := &page{}
	listed := p.listed
	if p.request.Continue == "" {
		listed = size{}
	}
	keep := func(o *object) error {
		out.items = append(out.items, o)
		listed.add(o)
		if len(out.items)%chargeEvery == 0 && !p.chargeListed(listed) {
			return fmt.Errorf("initial list: %w", errOverBudget)
		}
		return nil
	}
	meta, err := d.List(raw, func(rec *aggregate.Record, unfit error) error {
		return keep(p.object(rec, unfit, true))
	})
	i.fellBack(d.Fallbacks())
	if err != nil {
		return nil, err
	}
	out.resourceVersion, out.more = meta.ResourceVersion, meta.Continue
	return out, nil
}

// object makes of a record what is kept of it. What is listed is mostly held already.
func (p *listWatch) object(rec *aggregate.Record, unfit error, listed bool) *object {
	i := p.informer
	if why := p.whyUnfit(rec, unfit); why != "" {
		return p.unfitObject(rec, why)
	}
	i.itemsMu.Lock()
	defer i.itemsMu.Unlock()
	o, held := &object{}, false
	if listed {
		o.item, held = i.scope.Held(rec)
	}
	if !held {
		o.item = i.scope.Item(rec)
	}
	o.namespace, o.name = o.item.Key()
	o.rv = o.item.ResourceVersion()
	return o
}

// stagePage adds a page to the list under way.
func (p *listWatch) stagePage(g *page) error {
	if p.request.Continue == "" {
		p.discard()
	}
	for _, o := range g.items {
		p.listed.add(o)
	}
	p.staged = append(p.staged, g.items...)
	if !p.chargeListed(p.listed) {
		return fmt.Errorf("initial list: %w", errOverBudget)
	}
	return nil
}

func splitPaths(paths []string) [][]string {
	out := make([][]string, len(paths))
	for i, p := range paths {
		out[i] = strings.Split(p, ".")
	}
	return out
}

// chargeResponse charges the member for bytes of responses that are under way or, below 0,
// gives them back.
func (p *listWatch) chargeResponse(bytes int64) error {
	i := p.informer
	if !i.member.quota.Charge(&i.usage, 0, bytes) {
		return fmt.Errorf("reading a response: %w", errOverBudget)
	}
	return nil
}

// initialPageBytes is the first buffer of a page, which is not charged.
const initialPageBytes = 64 << 10

// readPage reads a response of at most so many bytes; for a large one the member is
// charged while it comes. It returns one byte more of a response that is larger. What it has
// charged is the caller's to give back, with an error, too. large is called whenever a response
// that is large has brought more.
func (p *listWatch) readPage(body io.Reader, limit int64, large func()) (page []byte, charged int64, err error) {
	charge := func(bytes int64) error {
		if err := p.chargeResponse(bytes - charged); err != nil {
			return err
		}
		charged = bytes
		return nil
	}
	page = make([]byte, 0, initialPageBytes)
	for {
		if len(page) == cap(page) {
			if int64(len(page)) > limit {
				return page, charged, nil
			}
			size := min(2*int64(cap(page)), limit+1)
			if err := charge(size + int64(cap(page))); err != nil {
				return nil, charged, err
			}
			next := make([]byte, len(page), size)
			copy(next, page)
			page = next
			if err := charge(size); err != nil {
				return nil, charged, err
			}
		}
		if len(page) >= initialPageBytes {
			large()
		}
		n, err := body.Read(page[len(page):cap(page)])
		page = page[:len(page)+n]
		switch {
		case errors.Is(err, io.EOF):
			return page, charged, nil
		case err != nil:
			return nil, charged, err
		}
	}
}

// object is what is carried from a response to the index: an encoded item and the little
// metadata that is needed on the way.
type object struct {
	item      aggregate.Item // zero for deletions and what is unfit
	namespace string
	name      string
	rv        string
	unfit     unfitReason // why it is not kept; zero where it is
	deleted   bool        // while it was listed
	key       audit.Key   // of what is unfit, as is digest
	digest    audit.Digest
}

// unfitSize is what an object that is not kept, or is deleted, costs while it is listed.
const unfitSize = 512

// size is what holding the object costs in bytes.
func (o *object) size() int64 {
	if o.unfit.why != "" || o.deleted {
		return unfitSize
	}
	return o.item.Size()
}

// page is one page of a list.
type page struct {
	items                 []*object
	resourceVersion, more string // more continues the list
	scope                 string // its state, as a federator says
}

// size is what items cost.
type size struct{ objects, bytes int64 }

func (s *size) add(o *object) {
	s.objects++
	s.bytes += o.size()
}

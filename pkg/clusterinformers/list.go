package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// ListWithContext lists one page, for members that cannot stream a list, or all
// that is left where pages have been too large. An object that is held as it is
// listed is not encoded again.
func (p *part) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	i := p.informer
	if !p.lists.enter() {
		return nil, context.Canceled
	}
	defer p.lists.leave()
	p.syncing()
	slot, err := i.member.manager.slots.Acquire(ctx, i.member.syncs)
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	list, err := p.page(ctx, opts)
	if err != nil || p.pageLimit == 0 {
		return list, err
	}
	// The Reflector's pager falls back to one list without pages when a page is
	// too old to go on from, and takes it for the whole: it is given the whole.
	for list.Continue != "" {
		slot.Progress()
		next, err := p.page(ctx, metav1.ListOptions{Continue: list.Continue})
		if err != nil {
			return nil, err
		}
		list.Items, list.Continue = append(list.Items, next.Items...), next.Continue
	}
	list.RemainingItemCount = nil
	return list, nil
}

// firstPageLimit is how many objects a page has once a list without pages was too
// large, as client-go's pages have.
const firstPageLimit = 500

// shrink makes the pages of the part smaller. It reports false when they cannot
// be.
func (p *part) shrink(opts metav1.ListOptions) bool {
	switch {
	case p.pageLimit == 1:
		return false
	case p.pageLimit > 1:
		p.pageLimit /= 2
	case opts.Continue != "" && opts.Limit > 1: // the server has pages, and this is one
		p.pageLimit = opts.Limit / 2
	default:
		p.pageLimit = firstPageLimit
	}
	p.informer.log.Info("list is read in smaller pages: one was larger than a response may be", "objects", p.pageLimit)
	return true
}

// paged fits the options of a list to the part's pages. API servers answer a list
// at any resourceVersion but the newest from a cache, without regard to a limit.
func (p *part) paged(opts metav1.ListOptions) metav1.ListOptions {
	if p.pageLimit > 0 {
		opts.Limit, opts.ResourceVersion, opts.ResourceVersionMatch = p.pageLimit, "", ""
	}
	return opts
}

// page lists one page, again and again while what is in the way may pass.
func (p *part) page(ctx context.Context, opts metav1.ListOptions) (*objectList, error) {
	i := p.informer
	delay := probeFirst
	for again := false; ; again = true {
		a, err := i.member.conn.admit(ctx, again)
		if err != nil {
			return nil, err
		}
		list, err := p.listOnce(ctx, a, p.paged(opts))
		if err == nil {
			if err = p.counted(list, opts.Continue == ""); err == nil {
				i.member.conn.over(string(i.kind))
				return list, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case errors.Is(err, decode.ErrTooLarge) && p.shrink(opts):
			continue
		case errors.Is(err, decode.ErrTooLarge), errors.Is(err, errOverBudget):
			p.exceed(err.Error())
			return nil, err
		case errors.Is(err, decode.ErrUnknownField), errors.Is(err, decode.ErrMalformed):
			if !i.toJSON(err.Error()) {
				return nil, err
			}
			continue
		}
		switch classify(err) {
		case broken, denied:
			i.member.conn.failed(a, err)
		case busy:
			i.member.conn.noteOf(i.kind, err)
		case unable:
			if !i.toJSON(err.Error()) {
				return nil, err
			}
		default:
			return nil, err
		}
		delay = longer(delay)
		if err := backoff.Sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// counted charges the member for one more page, and drops what pages before
// the first were charged for.
func (p *part) counted(page *objectList, first bool) error {
	if first {
		p.pages = size{}
	}
	p.pages.objects += int64(len(page.Items))
	for _, o := range page.Items {
		p.pages.bytes += o.(*object).size()
	}
	if !p.settle(p.pages) {
		return fmt.Errorf("first list: %w", errOverBudget)
	}
	return nil
}

// countEvery is after how many items of a page they are charged for.
const countEvery = 256

// listTimeout bounds one page of a list.
const listTimeout = 2 * time.Minute

func (p *part) listOnce(ctx context.Context, a *memberclient.Client, opts metav1.ListOptions) (*objectList, error) {
	i := p.informer
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, encoding, err := p.do(ctx, a, &opts)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	if opts.Continue == "" {
		p.pages = size{}
	}
	most := i.member.manager.opts.Budget.ResponseBytes
	raw, charged, err := p.readPage(body, most)
	defer func() { _ = p.receiving(-charged) }() //nolint:errcheck // less is never refused
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > most {
		return nil, fmt.Errorf("list page of more than %d bytes: %w", most, decode.ErrTooLarge)
	}
	now := time.Now()
	i.heard.Store(now.UnixNano())
	i.metrics.heard(now)
	return p.decodeList(raw, encoding, now)
}

func (p *part) decodeList(raw []byte, encoding decode.Encoding, now time.Time) (*objectList, error) {
	i := p.informer
	d, err := decode.New(i.res.GVK, encoding, i.rules)
	if err != nil {
		return nil, err
	}
	out := &objectList{}
	so := p.pages
	keep := func(o *object) error {
		out.Items = append(out.Items, o)
		so.objects++
		so.bytes += o.size()
		if len(out.Items)%countEvery == 0 && !p.settle(so) {
			return fmt.Errorf("first list: %w", errOverBudget)
		}
		return nil
	}
	meta, err := d.List(raw, func(rec *aggregate.Record, unfit error) error {
		if why := p.unfit(rec, unfit); why != "" {
			return keep(p.unfitObject(rec, why))
		}
		i.items.Lock()
		defer i.items.Unlock()
		item, held := i.scope.Held(rec)
		if !held {
			item = i.scope.Item(rec)
		}
		ns, name := item.Key()
		return keep(&object{item: item, namespace: ns, name: name, rv: item.ResourceVersion(), read: now})
	})
	if n := d.Fallbacks(); n > 0 {
		i.fallback.Add(n)
		i.metrics.fallbacks.Add(float64(n))
	}
	if err != nil {
		return nil, err
	}
	out.ResourceVersion, out.Continue, out.RemainingItemCount = meta.ResourceVersion, meta.Continue, meta.RemainingItemCount
	return out, nil
}

func splitPaths(paths []string) [][]string {
	out := make([][]string, len(paths))
	for i, p := range paths {
		out[i] = strings.Split(p, ".")
	}
	return out
}

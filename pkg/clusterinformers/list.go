package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// ListWithContext lists one page, for members that cannot stream a list, or all
// that is left where pages have been too large. An object that is held as it is
// listed is not encoded again.
func (p *listWatch) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	i := p.informer
	if !p.lists.enter() {
		return nil, context.Canceled
	}
	defer p.lists.leave()
	p.markSyncing()
	slot, err := i.member.manager.slots.Acquire(ctx, i.member.listSlots)
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

// shrinkPages reduces the page size of the listWatch. It reports false when they cannot
// be.
func (p *listWatch) shrinkPages(opts metav1.ListOptions) bool {
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
	p.informer.log.Info("reducing the page size of a list: a page exceeded the response limit", "objects", p.pageLimit)
	return true
}

// pageOptions fits the options of a list to the page size. API servers answer a list
// at any resourceVersion but the newest from a cache, without regard to a limit.
func (p *listWatch) pageOptions(opts metav1.ListOptions) metav1.ListOptions {
	if p.pageLimit > 0 {
		opts.Limit, opts.ResourceVersion, opts.ResourceVersionMatch = p.pageLimit, "", ""
	}
	return opts
}

// page lists one page, again and again while what is in the way may pass.
func (p *listWatch) page(ctx context.Context, opts metav1.ListOptions) (*objectList, error) {
	i := p.informer
	delay := minProbeDelay
	for again := false; ; again = true {
		a, err := i.member.conn.admit(ctx, again)
		if err != nil {
			return nil, err
		}
		list, err := p.listOnce(ctx, a, p.pageOptions(opts))
		if err == nil {
			if err = p.chargePage(list, opts.Continue == ""); err == nil {
				i.member.conn.clearError(string(i.kind))
				return list, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case errors.Is(err, decode.ErrTooLarge) && p.shrinkPages(opts):
			continue
		case errors.Is(err, decode.ErrTooLarge), errors.Is(err, errOverBudget):
			p.stopOverBudget(err.Error())
			return nil, err
		case errors.Is(err, decode.ErrUnknownField), errors.Is(err, decode.ErrMalformed):
			if !i.switchToJSON(err.Error()) {
				return nil, err
			}
			continue
		}
		switch classify(err) {
		case connectionFailed, unauthorized:
			i.member.conn.reportFailure(a, err)
		case serverBusy:
			i.member.conn.recordKindError(i.kind, err)
		case unsupported:
			if !i.switchToJSON(err.Error()) {
				return nil, err
			}
		default:
			return nil, err
		}
		delay = longerDelay(delay)
		if err := sleep.For(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// chargePage charges the member for one more page, and drops what pages before
// the first were charged for.
func (p *listWatch) chargePage(page *objectList, first bool) error {
	if first {
		p.listedPages = size{}
	}
	p.listedPages.objects += int64(len(page.Items))
	for _, o := range page.Items {
		p.listedPages.bytes += o.(*object).size()
	}
	if !p.chargeListed(p.listedPages) {
		return fmt.Errorf("initial list: %w", errOverBudget)
	}
	return nil
}

// chargeEvery is after how many items of a page they are charged for.
const chargeEvery = 256

// listTimeout bounds one page of a list.
const listTimeout = 2 * time.Minute

func (p *listWatch) listOnce(ctx context.Context, a *memberclient.Client, opts metav1.ListOptions) (*objectList, error) {
	i := p.informer
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, encoding, err := p.send(ctx, a, &opts)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	if opts.Continue == "" {
		p.listedPages = size{}
	}
	limit := i.member.manager.opts.Budget.ResponseBytes
	raw, charged, err := p.readPage(body, limit)
	defer func() { _ = p.chargeResponse(-charged) }() //nolint:errcheck // less is never refused
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("list page of more than %d bytes: %w", limit, decode.ErrTooLarge)
	}
	now := time.Now()
	i.lastRead.Store(now.UnixNano())
	i.metrics.contact(now)
	return p.decodeList(raw, encoding, now)
}

func (p *listWatch) decodeList(raw []byte, encoding decode.Encoding, now time.Time) (*objectList, error) {
	i := p.informer
	d, err := decode.New(i.res.GVK, encoding, i.rules)
	if err != nil {
		return nil, err
	}
	out := &objectList{}
	so := p.listedPages
	keep := func(o *object) error {
		out.Items = append(out.Items, o)
		so.objects++
		so.bytes += o.size()
		if len(out.Items)%chargeEvery == 0 && !p.chargeListed(so) {
			return fmt.Errorf("initial list: %w", errOverBudget)
		}
		return nil
	}
	meta, err := d.List(raw, func(rec *aggregate.Record, unfit error) error {
		if why := p.whyUnfit(rec, unfit); why != "" {
			return keep(p.unfitObject(rec, why))
		}
		i.itemsMu.Lock()
		defer i.itemsMu.Unlock()
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

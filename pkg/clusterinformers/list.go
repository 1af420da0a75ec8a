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
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
)

// ListWithContext lists one page, for members that cannot stream a list. An
// object that is held at the listed version is not encoded again.
func (p *part) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	i := p.informer
	if !p.lists.enter() {
		return nil, context.Canceled
	}
	defer p.lists.leave()
	p.syncing()
	slot, err := i.member.manager.slots.take(ctx, i.member.syncs)
	if err != nil {
		return nil, err
	}
	defer slot.release()
	delay := probeFirst
	for again := false; ; again = true {
		a, err := i.member.conn.admit(ctx, again)
		if err != nil {
			return nil, err
		}
		list, err := p.listOnce(ctx, a, opts)
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
		if err := pause(ctx, delay); err != nil {
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

func (p *part) listOnce(ctx context.Context, a *access, opts metav1.ListOptions) (*objectList, error) {
	i := p.informer
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := p.do(ctx, a, &opts)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	if opts.Continue == "" {
		p.pages = size{}
	}
	most := i.member.account.limit.ResponseBytes
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
	return p.decodeList(raw, now)
}

func (p *part) decodeList(raw []byte, now time.Time) (*objectList, error) {
	i := p.informer
	d, err := decode.New(i.res.gvk, decode.Encoding(i.encoding.Load()), i.rules)
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
		item, held := i.scope.Held(rec.Namespace, rec.Name, rec.UID, rec.ResourceVersion)
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

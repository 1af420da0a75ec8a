package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policysource"
)

// asked is what asks for a look at a repository by having changed.
type asked struct {
	sync string    // the annotation
	push time.Time // status.lastPush
}

// sync asks for a look at the repositories of sources that somebody has asked for. A
// source that has just come is looked at anyway.
func (s *Sources) sync(list []*v1alpha1.PolicySource) {
	all := map[string]asked{}
	for _, ps := range list {
		uid, now := string(ps.UID), asked{sync: ps.Annotations[api.SyncKey]}
		if ps.Status.LastPush != nil {
			now.push = ps.Status.LastPush.Time
		}
		before, known := s.asked[uid]
		all[uid] = now
		if !known || (before.sync == now.sync || now.sync == "") && before.push.Equal(now.push) {
			continue
		}
		s.look(ps.Name)
	}
	s.asked = all
}

func (s *Sources) look(name string) {
	if err := s.opts.Manager.Sync(name); err != nil && !errors.Is(err, policysource.ErrSource) {
		s.opts.Logger.Warn("a PolicySource is not synced", "source", name, "err", err)
	}
}

// Pushed takes note that somebody pushed to the repositories of some sources. It says
// so on the hub, so that each process looks at them: the one that leads is often not
// the one that a webhook has told. It does not block.
func (s *Sources) Pushed(sources []string) {
	s.mu.Lock()
	for _, name := range sources {
		s.pushed[name] = true
	}
	s.mu.Unlock()
	s.poke()
}

// announce says on the hub what webhooks have told this process. If it cannot, this
// process looks at least.
func (s *Sources) announce(ctx context.Context) {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.pushed))
	clear(s.pushed)
	s.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		patch := fmt.Appendf(nil, `{"status":{"lastPush":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		err := s.client.rest.Patch(types.MergePatchType).Resource(v1alpha1.PolicySources).Name(name).SubResource("status").
			VersionedParams(&metav1.PatchOptions{FieldManager: "federator"}, s.client.codec).Body(patch).Do(ctx).Error()
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			s.opts.Logger.Warn("a push is not announced to other processes", "source", name, "err", err)
			s.look(name)
		}
	}
}

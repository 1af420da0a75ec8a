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

// syncRequest is what triggers a check of a repository when it changes.
type syncRequest struct {
	sync string    // the annotation
	push time.Time // status.lastPush
}

// syncRequested checks the repositories of sources whose sync was requested. New sources
// are checked anyway.
func (s *PolicySources) syncRequested(list []*v1alpha1.PolicySource) {
	all := map[string]syncRequest{}
	for _, ps := range list {
		uid, now := string(ps.UID), syncRequest{sync: ps.Annotations[api.SyncKey]}
		if ps.Status.LastPush != nil {
			now.push = ps.Status.LastPush.Time
		}
		before, known := s.syncRequests[uid]
		all[uid] = now
		if !known || (before.sync == now.sync || now.sync == "") && before.push.Equal(now.push) {
			continue
		}
		s.syncSource(ps.Name)
	}
	s.syncRequests = all
}

func (s *PolicySources) syncSource(name string) {
	if err := s.opts.Manager.Sync(name); err != nil && !errors.Is(err, policysource.ErrUnknownSource) {
		s.opts.Logger.Warn("syncing a policy source failed", "source", name, "error", err)
	}
}

// RecordPush records a push to the repositories of some sources in their statuses, so that
// each process checks them: the leader is often not the process that a webhook has called.
// It does not block.
func (s *PolicySources) RecordPush(sources []string) {
	s.mu.Lock()
	for _, name := range sources {
		s.pushed[name] = true
	}
	s.mu.Unlock()
	s.trigger()
}

// announcePushes writes pushes that webhooks have reported to this process to the hub. If
// that fails, only this process checks the repositories.
func (s *PolicySources) announcePushes(ctx context.Context) {
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
			s.opts.Logger.Warn("recording a push on the hub failed", "source", name, "error", err)
			s.syncSource(name)
		}
	}
}

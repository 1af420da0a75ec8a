package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/shards/internal/membership"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// maxMessage bounds errors that repeat what the hub has.
const maxMessage = 512

// informers returns what follows the Leases, the map and the CAs.
func (s *Shards) informers() ([]cache.SharedIndexInformer, error) {
	leases := s.client.CoordinationV1().Leases(s.o.Namespace)
	maps := s.client.CoreV1().ConfigMaps(s.o.Namespace)
	secrets := s.client.CoreV1().Secrets(s.o.Namespace)
	named := func(name string) func(*metav1.ListOptions) {
		selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return func(o *metav1.ListOptions) { o.FieldSelector = selector }
	}
	var all []cache.SharedIndexInformer
	for _, f := range []struct {
		what     string
		example  runtime.Object
		restrict func(*metav1.ListOptions)
		list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
		watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
		is, gone func(any)
	}{
		{
			"leases", &coordinationv1.Lease{}, func(o *metav1.ListOptions) { o.LabelSelector = Label },
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return leases.List(ctx, o) }, leases.Watch,
			func(obj any) { s.seeLease(obj.(*coordinationv1.Lease)) }, func(obj any) { s.forgetLease(obj.(*coordinationv1.Lease)) },
		},
		{
			"configmaps", &corev1.ConfigMap{}, named(s.o.ConfigMap),
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return maps.List(ctx, o) }, maps.Watch,
			func(obj any) { s.seeMap(obj.(*corev1.ConfigMap)) }, func(any) { s.reject("", nil) },
		},
		{
			"secrets", &corev1.Secret{}, named(s.o.Secret),
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return secrets.List(ctx, o) }, secrets.Watch,
			func(obj any) { s.load(obj.(*corev1.Secret)) }, func(any) { s.reload.Fire() },
		},
	} {
		i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				f.restrict(&o)
				return f.list(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				f.restrict(&o)
				return f.watch(ctx, o)
			},
		}, s.client), f.example, 0, cache.Indexers{})
		err := i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				s.log.Warn("list or watch on the hub failed, retrying", "resource", f.what, "error", err)
			}
		})
		if err != nil {
			return nil, err
		}
		_, err = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    f.is,
			UpdateFunc: func(_, obj any) { f.is(obj) },
			DeleteFunc: func(obj any) {
				if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
					obj = gone.Obj
				}
				f.gone(obj)
			},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// seeMap takes the map that the hub has.
func (s *Shards) seeMap(c *corev1.ConfigMap) {
	m, err := shardmap.Decode(c.BinaryData[shardmap.Key])
	if err != nil {
		s.reject(c.ResourceVersion, fmt.Errorf("ConfigMap %s/%s: binaryData[%s]: %w", c.Namespace, c.Name, shardmap.Key, err))
		return
	}
	s.accept(m, c.ResourceVersion)
}

// noMap takes note that the hub has no map, where that is not known yet: the informer tells of objects only.
func (s *Shards) noMap(ctx context.Context) error {
	s.mu.Lock()
	seen := s.hub.seen
	s.mu.Unlock()
	if seen {
		return nil
	}
	return s.readMap(ctx)
}

// readMap takes the map as the hub has it now.
func (s *Shards) readMap(ctx context.Context) error {
	c, err := s.client.CoreV1().ConfigMaps(s.o.Namespace).Get(ctx, s.o.ConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.reject("", nil)
		return nil
	case err != nil:
		return err
	}
	s.seeMap(c)
	return nil
}

// parseLease reads a process's Lease.
func parseLease(l *coordinationv1.Lease) (membership.Lease, error) {
	id := l.Labels[Label]
	out := membership.Lease{Process: shardmap.Process{ID: id}, Version: l.ResourceVersion}
	if l.Name != LeasePrefix+id {
		return out, fmt.Errorf("its label %s is not of its name", Label)
	}
	if err := shardmap.CheckID(id); err != nil {
		return out, fmt.Errorf("label %s: %w", Label, err)
	}
	var err error
	if out.Process.Epoch, err = strconv.ParseUint(l.Annotations[epochAnnotation], 10, 64); err != nil {
		return out, fmt.Errorf("annotation %s: %q is no epoch", epochAnnotation, clip.Line(l.Annotations[epochAnnotation], 32))
	}
	out.Process.Address = l.Annotations[addressAnnotation]
	if err := shardmap.CheckAddress(out.Process.Address); err != nil {
		return out, fmt.Errorf("annotation %s: %w", addressAnnotation, err)
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	out.Released = l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == ""
	return out, nil
}

func (s *Shards) seeLease(l *coordinationv1.Lease) {
	lease, err := parseLease(l)
	if err != nil {
		s.log.Error("the Lease of a process is not usable", "lease", l.Namespace+"/"+l.Name, "error", clip.Line(err.Error(), maxMessage))
		return
	}
	s.mu.Lock()
	changed := s.leases.See(lease, time.Now())
	s.mu.Unlock()
	if changed {
		s.consider.Fire()
		s.refresh.Fire()
	}
}

func (s *Shards) forgetLease(l *coordinationv1.Lease) {
	s.mu.Lock()
	s.leases.Forget(l.Labels[Label])
	s.mu.Unlock()
	s.consider.Fire()
	s.refresh.Fire()
}

// keepLease renews this process's Lease until ctx is done, and then releases it. An error is that another process has taken it.
func (s *Shards) keepLease(ctx context.Context) error {
	var lease *coordinationv1.Lease // as it was last written
	failed := false                 // the last time
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return s.release(ctx, lease)
		}
		began := time.Now()
		now, err := s.renew(ctx, lease)
		wait := s.o.Renew - time.Since(began)
		switch {
		case err == nil:
			lease = now
			s.mu.Lock()
			if s.renewed = began; s.contact.IsZero() {
				s.contact = began
			}
			s.mu.Unlock()
			s.seeLease(lease)
			failed = false
		case isTaken(err):
			return err
		case ctx.Err() == nil:
			if !failed {
				s.log.Warn("renewing the Lease of this process failed, retrying", "error", err)
			}
			s.mu.Lock()
			s.contact = time.Time{}
			s.mu.Unlock()
			failed = true
			wait = s.o.Renew * 2 / 5 // these are no more writes than there may be
		}
		next.Reset(max(wait, s.o.Renew/5))
	}
}

// renew writes the Lease, which this process has had as it was before, or takes over one of its ID.
func (s *Shards) renew(ctx context.Context, had *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.hubTimeout())
	defer cancel()
	leases := s.client.CoordinationV1().Leases(s.o.Namespace)
	if had != nil {
		now, err := leases.Update(ctx, s.lease(had), metav1.UpdateOptions{})
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return now, err
		}
	}
	is, err := leases.Get(ctx, LeasePrefix+s.o.ID, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return leases.Create(ctx, s.lease(nil), metav1.CreateOptions{})
	case err != nil:
		return nil, err
	case had != nil && is.Annotations[epochAnnotation] != s.epoch():
		return nil, fmt.Errorf("%w %s: the Lease is of epoch %s, and this process of %s", ErrTaken, s.o.ID, clip.Line(is.Annotations[epochAnnotation], 32), s.epoch())
	}
	return leases.Update(ctx, s.lease(is), metav1.UpdateOptions{})
}

// lease returns the Lease as this process renews it.
func (s *Shards) lease(was *coordinationv1.Lease) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.o.Namespace, Name: LeasePrefix + s.o.ID}}
	if was != nil {
		l = was.DeepCopy()
	}
	metav1.SetMetaDataLabel(&l.ObjectMeta, Label, s.o.ID)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, epochAnnotation, s.epoch())
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, addressAnnotation, s.o.Address)
	holder, seconds, now := s.o.ID, int32(max(s.o.Expire.Round(time.Second)/time.Second, 1)), metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &now
	return l
}

func (s *Shards) epoch() string { return strconv.FormatUint(uint64(s.o.Epoch), 10) }

// release says that this process has ended.
func (s *Shards) release(ctx context.Context, had *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.hubTimeout())
	defer cancel()
	var err error
	if had != nil {
		err = s.writeReleased(ctx, had)
	}
	if had == nil || apierrors.IsConflict(err) { // the end of this process may have cut off the response to a renewal
		err = s.releaseHeld(ctx)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		s.log.Warn("releasing the Lease of this process failed: it expires", "error", err)
	}
	return nil
}

// releaseHeld releases the Lease as the hub has it, unless it is another process's.
func (s *Shards) releaseHeld(ctx context.Context) error {
	is, err := s.client.CoordinationV1().Leases(s.o.Namespace).Get(ctx, LeasePrefix+s.o.ID, metav1.GetOptions{})
	if err != nil || is.Annotations[epochAnnotation] != s.epoch() {
		return err
	}
	return s.writeReleased(ctx, is)
}

func (s *Shards) writeReleased(ctx context.Context, was *coordinationv1.Lease) error {
	l, nobody := s.lease(was), ""
	l.Spec.HolderIdentity = &nobody
	_, err := s.client.CoordinationV1().Leases(s.o.Namespace).Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// hubTimeout is how long a request to the hub takes at most: so that a Lease that can be renewed is.
func (s *Shards) hubTimeout() time.Duration { return max(s.o.Renew, time.Second) }

func isTaken(err error) bool { return errors.Is(err, ErrTaken) }

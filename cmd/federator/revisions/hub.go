package revisions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// The Lease that keeps the number, in an annotation. Its holder is the process that
// reserved last.
const (
	LeaseName       = "federator-revisions"
	BlockAnnotation = "federator.dev/revisions-block"
)

type hubStore struct {
	leases    coordinationclient.LeaseInterface
	namespace string
	holder    string
	uid       string // of the Lease, once something was reserved
}

// OnHub keeps the number on the hub, in a namespace. holder is the process's name in the
// Lease.
func OnHub(hub *rest.Config, namespace, holder string) (Store, error) {
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("revisions: hub: %w", err)
	}
	return &hubStore{leases: client.CoordinationV1().Leases(namespace), namespace: namespace, holder: holder}, nil
}

func (s *hubStore) String() string { return "Lease " + s.namespace + "/" + LeaseName + " of the hub" }

// Installation implements Installed.
func (s *hubStore) Installation() string { return s.uid }

// Reserve implements Store. A lost race is retried: another process made progress.
func (s *hubStore) Reserve(ctx context.Context, floor uint64) (uint64, error) {
	for {
		n, err := s.reserve(ctx, floor)
		switch {
		case err == nil:
			return n, nil
		case (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && ctx.Err() == nil:
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return 0, fmt.Errorf("%w: %w", ErrPermanent, err)
		default:
			return 0, err
		}
	}
}

// reserve tries once.
func (s *hubStore) reserve(ctx context.Context, floor uint64) (uint64, error) {
	lease, err := s.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	found := err == nil
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: s.namespace}}
	case err != nil:
		return 0, err
	case lease.ResourceVersion == "":
		return 0, errors.New("the hub's response has no resourceVersion")
	}
	n, err := nextBlock(lease.Annotations[BlockAnnotation], floor)
	if err != nil {
		return 0, err
	}
	now := metav1.NowMicro()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, BlockAnnotation, strconv.FormatUint(n, 10))
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &s.holder, &metav1.MicroTime{Time: now.Truncate(time.Microsecond)}
	if !found {
		lease, err = s.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = s.leases.Update(ctx, lease, metav1.UpdateOptions{}) // only if it has this resourceVersion
	}
	if err == nil && s.uid == "" {
		s.uid = string(lease.UID)
	}
	return n, err
}

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/api"
)

// leaseName is the Lease that keeps what was proven: people who may write ConfigMaps in
// federator's namespace, to stop it, must not be able to date a proof back.
const leaseName = "federator-admission"

// Annotations of the Lease: what a proof rests on, as JSON, or unproven.
const (
	approvalsKey = api.GroupName + "/approvals"
	authorsKey   = api.GroupName + "/authors"
	rollbacksKey = api.GroupName + "/rollbacks"

	unproven = "unproven"
)

// Known is since when a hub is known to prove something, without an interruption.
type Known struct {
	Since time.Time // by the hub's clock, in seconds; zero if it is not proven now
	Why   string    // it is not
}

// KnownProofs are since when a hub is known to prove what Proofs say.
type KnownProofs struct{ Approvals, Authors, Rollbacks Known }

// Keeper keeps on the hub since when names are proven, so that failovers forget nothing.
// Only the leader may use it.
type Keeper struct {
	prover    *Prover
	client    kubernetes.Interface
	namespace string
}

// NewKeeper returns a Keeper with a Lease in federator's namespace.
func NewKeeper(client kubernetes.Interface, namespace string) *Keeper {
	return &Keeper{prover: NewProver(client), client: client, namespace: namespace}
}

// Check asks the hub what it proves now, and returns since when: an Approval that was created
// at that second or before is not proven to be of whom it names. The same goes for authors
// and changes, and for Rollbacks. After an error nothing is proven.
func (k *Keeper) Check(ctx context.Context) (KnownProofs, error) {
	now, err := k.prover.Prove(ctx)
	if err != nil {
		return KnownProofs{}, err
	}
	known, err := k.keepAll(ctx, &now)
	if err != nil {
		return KnownProofs{}, fmt.Errorf("admission: Lease %s/%s: %w", k.namespace, leaseName, err)
	}
	return known, nil
}

func (k *Keeper) keepAll(ctx context.Context, now *Proofs) (known KnownProofs, err error) {
	lease, err := k.lease(ctx)
	if err != nil {
		return known, err
	}
	if lease, known.Approvals, err = k.keep(ctx, lease, approvalsKey, now.Approvals); err != nil {
		return known, err
	}
	if lease, known.Authors, err = k.keep(ctx, lease, authorsKey, now.Authors); err != nil {
		return known, err
	}
	_, known.Rollbacks, err = k.keep(ctx, lease, rollbacksKey, now.Rollbacks)
	return known, err
}

func (k *Keeper) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	leases := k.client.CoordinationV1().Leases(k.namespace)
	lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			// API servers note no field managers of an object that begins without fields.
			Name: leaseName, Annotations: map[string]string{approvalsKey: unproven, authorsKey: unproven, rollbacksKey: unproven},
		}}
		return leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: leaseName})
	}
	return lease, err
}

// keep records a proof, unless the Lease has it already, and returns since when it has. That is
// when the field manager of the annotation, who is nobody else's, has changed it last: the
// hub's own time, which is what Approvals have, too.
func (k *Keeper) keep(ctx context.Context, lease *coordinationv1.Lease, key string, p Proof) (*coordinationv1.Lease, Known, error) {
	text := unproven
	if p.Proven() {
		body, err := json.Marshal(p.Objects)
		if err != nil {
			return nil, Known{}, err
		}
		text = string(body)
	}
	if lease.Annotations[key] != text {
		lease = lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, text)
		var err error
		if lease, err = k.client.CoordinationV1().Leases(k.namespace).Update(ctx, lease, metav1.UpdateOptions{FieldManager: key}); err != nil {
			return nil, Known{}, err // a conflict, too: somebody else checks
		}
	}
	if !p.Proven() {
		return lease, Known{Why: p.Reason}, nil
	}
	for _, m := range lease.ManagedFields {
		if m.Manager == key && m.Operation == metav1.ManagedFieldsOperationUpdate && m.Time != nil {
			return lease, Known{Since: m.Time.Time}, nil
		}
	}
	return nil, Known{}, fmt.Errorf("no field manager %q: delete it, so that what is proven is recorded again", key)
}

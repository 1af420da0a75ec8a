package faults

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube/tcpproxy"
)

// hubFaults befall the hub, which members do not depend on.
var hubFaults = []fault{
	{
		name: "hub away", hold: 30 * time.Second, brief: 3 * time.Second,
		inject: func(r *rig) error { return r.hub.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}) },
		heal:   func(r *rig) error { return r.hub.Proxy.Set(tcpproxy.Mode{}) },
	},
	{
		name: "Lease lost to another", hold: 5 * time.Second, brief: time.Second,
		inject: func(r *rig) error {
			now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
			patch := fmt.Sprintf(`{"spec":{"holderIdentity":"somebody-else","acquireTime":%q,"renewTime":%q}}`, now, now)
			_, err := r.hub.Client().CoordinationV1().Leases("federator").Patch(r.t.Context(), "federator", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		},
		during: func(r *rig) error { return r.untilErr(func() error { return r.logged("leader election lost") }) },
	},
}

package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube/tcpproxy"
)

// TestAgent_SendsWhatDiffers: objects that are alike cost little of the link, and a watch that was cut goes on.
func TestAgent_SendsWhatDiffers(t *testing.T) {
	j := join(t, 0)
	maps := shared.Fleet.Members[0].Client().CoreV1().ConfigMaps("default")
	t.Cleanup(func() {
		ok(t, maps.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "alike"}))
	})
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "setting-%d = %x\n", i, i*i*7919)
	}
	before := j.proxy.Stats()
	const many = 40
	for i := range many {
		if i == many/2 {
			ok(t, j.proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}))
			ok(t, j.proxy.Set(tcpproxy.Mode{}))
		}
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("alike-", i), Labels: map[string]string{"alike": "yes"}}, Data: map[string]string{"text": text.String()},
		}, metav1.CreateOptions{})
		ok(t, err)
		j.follower.has(j.member, fmt.Sprint("alike-", i), true)
	}
	sent, plain := j.proxy.Stats().Sent-before.Sent, int64(many*text.Len())
	t.Logf("%d bytes of %d were sent", sent, plain)
	if sent > plain/5 {
		t.Errorf("%d bytes of %d were sent", sent, plain)
	}
}

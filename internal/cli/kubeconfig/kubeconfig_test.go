package kubeconfig

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/kube"
)

func TestIssue_TokensAreForTheQueryAPIAlone(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	if err := hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: bob, namespace: default}\n")); err != nil {
		t.Fatal(err)
	}
	f := flags{
		account: "default/bob", audience: "federator", duration: 3600e9,
		hub: clitest.WriteFile(t, "hub", string(hub.Kubeconfig())),
	}
	token, err := f.issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	review, err := hub.Client().AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"federator"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:default:bob" {
		t.Errorf("reviewed for federator: %+v, %v", review, err)
	}
	config := rest.AnonymousClientConfig(hub.RESTConfig())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the hub itself takes it: %v", err)
	}
	f.account = "default/nobody"
	if _, err := f.issue(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("nobody's token: %v", err)
	}
}

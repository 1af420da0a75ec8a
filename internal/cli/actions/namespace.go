package actions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/exit"
)

// chartSelector selects what the chart installs.
const chartSelector = "app.kubernetes.io/name=federator"

// findNamespace returns federator's namespace on the hub: the given one, else that of the
// Lease which its leader holds, or of its Deployment. A stop in another namespace would have
// no effect, so that anything but one namespace is an error, unless there is no federator yet.
func (c *hubClient) findNamespace(ctx context.Context, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	leases, err := c.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + election.LeaseName})
	if apierrors.IsForbidden(err) {
		return c.tryNamespaces(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("finding federator's namespace: %w", err)
	}
	var found []string
	for i := range leases.Items {
		if leases.Items[i].Name == election.LeaseName {
			found = append(found, leases.Items[i].Namespace)
		}
	}
	if len(found) == 0 {
		deployments, err := c.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: chartSelector})
		if err != nil && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("finding federator's namespace: %w", err)
		}
		if err == nil {
			for i := range deployments.Items {
				found = append(found, deployments.Items[i].Namespace)
			}
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 0:
		return config.DefaultNamespace, nil
	case 1:
		return found[0], nil
	}
	return "", exit.BadInput(fmt.Errorf("federator runs in several namespaces, %s: name one with --namespace", strings.Join(found, ", ")))
}

// tryNamespaces is findNamespace for those who may not list Leases of all namespaces: the
// chart's usual namespaces are tried.
func (c *hubClient) tryNamespaces(ctx context.Context) (string, error) {
	for _, namespace := range []string{config.DefaultNamespace, "federator-system"} {
		if _, err := c.CoordinationV1().Leases(namespace).Get(ctx, election.LeaseName, metav1.GetOptions{}); err == nil {
			return namespace, nil
		}
	}
	return "", exit.BadInput(errors.New("federator's namespace is not known: you may not list leases in all namespaces; name it with --namespace"))
}

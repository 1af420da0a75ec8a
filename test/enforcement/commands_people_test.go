package enforcement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/charts"
	"federator.dev/federator/test/kube"
)

// admin is the user of federator, and of kubectl, on hubs of stories.
const admin = "kubernetes-admin"

// peopleCommands are commands about users of the hub.
var peopleCommands = map[string]command{
	// user writes USER.kubeconfig, with which USER, in group people and GROUPs, talks to the hub; apply
	// and kubectl take the name as one of a cluster.
	"user": {"USER [GROUP...]", func(_ context.Context, s *story, ts *testscript.TestScript, args []string) error {
		cred, err := s.fleet.Hub.IssueCert(args[0], 24*time.Hour, append(args[1:], "people")...)
		if err != nil {
			return err
		}
		file := ts.MkAbs(args[0] + ".kubeconfig")
		s.kubeconfigs[args[0]] = file
		return os.WriteFile(file, s.fleet.Hub.KubeconfigWith(cred), 0o600)
	}},
	// admission installs the admission policies of the chart, until the story ends, or removes them.
	"admission": {"install|remove", func(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
		switch args[0] {
		case "install":
			s.closers = append(s.closers, func() {
				if err := s.dismiss(context.WithoutCancel(ctx)); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
			return s.admit(ctx)
		case "remove":
			return s.dismiss(ctx)
		}
		return fmt.Errorf("unknown: %s", args[0])
	}},
	// second waits until the hub's clock shows another second: what is known since a second is
	// not known of that second.
	"second": {"", func(ctx context.Context, s *story, _ *testscript.TestScript, _ []string) error {
		first, err := s.hubTime(ctx)
		if err != nil {
			return err
		}
		return kube.Until(ctx, timeout, func() error {
			if now, err := s.hubTime(ctx); err != nil || now == first {
				return fmt.Errorf("it is still %s: %w", first, err)
			}
			return nil
		})
	}},
}

// admit installs the admission policies, and waits until they are in force.
func (s *story) admit(ctx context.Context) error {
	all, err := charts.Admission(admin)
	if err != nil {
		return err
	}
	for _, manifests := range all {
		if err := s.fleet.Hub.Apply(ctx, []byte(manifests)); err != nil {
			return err
		}
	}
	trial := []byte(`{"apiVersion":"federator.dev/v1alpha1","kind":"FleetPolicy","metadata":{"name":"trial","annotations":{"federator.dev/changed-by":"nobody"}},"spec":{"package":"a"}}`)
	return kube.Until(ctx, timeout, func() error {
		err := s.fleet.Hub.Client().CoreV1().RESTClient().Post().AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies").Param("dryRun", metav1.DryRunAll).
			SetHeader("Content-Type", "application/json").Body(trial).Do(ctx).Error()
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the admission policies are not in force: %w", err)
		}
		return nil
	})
}

// dismiss removes the admission policies.
func (s *story) dismiss(ctx context.Context) error {
	all, err := charts.Admission(admin)
	errs := []error{err}
	client := s.fleet.Hub.Client().AdmissionregistrationV1()
	for name := range all {
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{client.ValidatingAdmissionPolicyBindings().Delete, client.ValidatingAdmissionPolicies().Delete} {
			if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// hubTime is the time of the hub, in seconds.
func (s *story) hubTime(ctx context.Context) (string, error) {
	made, err := s.fleet.Hub.Client().CoreV1().ConfigMaps("federator").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "clock"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return made.CreationTimestamp.UTC().Format(time.RFC3339), nil
}

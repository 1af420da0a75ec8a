package follow

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/api/v1alpha1"
)

// TestFollower_AsksAHubThatServesNoWatchesSeldom, whether these end at once, or have always expired.
func TestFollower_AsksAHubThatServesNoWatchesSeldom(t *testing.T) {
	for what, end := range map[string]func() (watch.Interface, error){
		"watches end": func() (watch.Interface, error) {
			w := watch.NewFake()
			w.Stop()
			return w, nil
		},
		"watches have expired": func() (watch.Interface, error) { return nil, apierrors.NewResourceExpired("too old") },
		"watches are refused": func() (watch.Interface, error) {
			return nil, apierrors.NewGenericServerResponse(http.StatusBadGateway, "get", v1alpha1.SchemeGroupVersion().WithResource("actions").GroupResource(), "", "", 0, true)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			lists, watches, told := 0, 0, 0
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			(&Follower[*v1alpha1.Action]{
				resource: "actions", sink: ignored{}, log: slog.New(slog.DiscardHandler),
				page: func(context.Context, metav1.ListOptions) (page[*v1alpha1.Action], error) {
					lists++
					return page[*v1alpha1.Action]{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
				},
				watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					if watches++; watches > 5000 {
						cancel()
					}
					return end()
				},
				changed: func() { told++ },
			}).Run(ctx)
			if lists > 30 || watches > 30 || told > 60 {
				t.Errorf("%s: in %v there were %d lists and %d watches, and %d changes were told of", what, 10*time.Minute, lists, watches, told)
			}
		})
	}
}

// ignored is a Sink.
type ignored struct{}

func (ignored) Begin()               {}
func (ignored) Put(*v1alpha1.Action) {}
func (ignored) End()                 {}
func (ignored) Set(*v1alpha1.Action) {}

func (ignored) Remove(*v1alpha1.Action) {}
func (ignored) SetStale(bool)           {}
func (ignored) SetUnreadable(int)       {}
func (ignored) Lacking() bool           { return false }

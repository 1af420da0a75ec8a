package sim_test

import (
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/sim"
)

func TestMember_SaysHowManyStreamsAConnectionMayHave(t *testing.T) {
	for given, want := range map[int]uint32{0: 100, 7: 7} {
		m := start(t, sim.Options{Members: 1, Streams: given}).Members()[0]
		if got, err := streamsOf(m); err != nil || got != want {
			t.Errorf("with %d as the option a connection may have %d streams, want %d; %v", given, got, want, err)
		}
	}
}

// streamsOf reads the server's first SETTINGS.
func streamsOf(m *sim.Member) (uint32, error) {
	// It authenticates nobody: only the settings are read.
	conn, err := tls.Dial("tcp", m.Address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return 0, err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return 0, err
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		return 0, err
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		return 0, fmt.Errorf("the first frame is a %T", frame)
	}
	n, ok := settings.Value(http2.SettingMaxConcurrentStreams)
	if !ok {
		return 0, fmt.Errorf("no limit in %v", settings)
	}
	return n, nil
}

func TestFleet_CountsWatches(t *testing.T) {
	fleet := start(t, sim.Options{Members: 1})
	client := clientFor(t, fleet.Members()[0].RESTConfig())
	for range 3 {
		w, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
	}
	count := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); fleet.Watches() != want; {
			if time.Now().After(deadline) {
				t.Fatalf("%d watches, want %d", fleet.Watches(), want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	count(3)
	fleet.Members()[0].DropWatches()
	count(0)
}

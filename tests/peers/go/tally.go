package main

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mostSamples is how many samples of a turn are told; more are thinned out.
const mostSamples = 2000

// A tally is how often something was done, and how long it took each time; many can add to it.
type tally struct {
	mutex   sync.Mutex
	samples []int64
}

// addSince adds what began at this instant and ends now.
func (t *tally) addSince(begun int64) {
	took := nowNs() - begun
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.samples = append(t.samples, took)
}

// report is the tally as an answer.
func (t *tally) report(wall, cpu int64) report {
	step := max((len(t.samples)+mostSamples-1)/mostSamples, 1)
	told := make([]int64, 0, mostSamples)
	for i := 0; i < len(t.samples); i += step {
		told = append(told, t.samples[i])
	}
	return report{"count": len(t.samples), "wall_ns": wall, "cpu_ns": cpu, "samples_ns": told}
}

// nowNs reads the clock that all processes of a machine share, which package time does not show.
func nowNs() int64 {
	return read(unix.CLOCK_MONOTONIC)
}

// cpuNs is the processor time of this process, all its threads together.
func cpuNs() int64 {
	return read(unix.CLOCK_PROCESS_CPUTIME_ID)
}

func read(clock int32) int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func sleepUntil(at int64) {
	time.Sleep(time.Duration(at - nowNs()))
}

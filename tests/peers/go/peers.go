package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// A lock of a peer, which is one holder.
type lock interface {
	// acquire says whether it was acquired; what else goes wrong is an error.
	acquire() (bool, error)
	release() error
}

// A session makes locks over connections; wait is how long to wait: nil for ever, 0 one try.
type session func(name string, ttl time.Duration, wait *time.Duration) lock

// peers are in the configuration that their documentation calls for.
var peers = map[string]func(urls []string) (session, error){
	"redsync":     openRedsync,
	"rueidislock": openRueidislock,
}

// redsync takes any number of nodes, and can return as soon as a quorum has answered.
type redsyncLock struct {
	mutex *redsync.Mutex
	wait  *time.Duration
}

func openRedsync(urls []string) (session, error) {
	pools := make([]redis.Pool, len(urls))
	for i, url := range urls {
		options, err := goredislib.ParseURL(url)
		if err != nil {
			return nil, err
		}
		pools[i] = goredis.NewPool(goredislib.NewClient(options))
	}
	sync := redsync.New(pools...)
	return func(name string, ttl time.Duration, wait *time.Duration) lock {
		// By default it gives up after 32 tries; how long to wait is the context's affair.
		tries := redsync.WithTries(math.MaxInt32)
		return &redsyncLock{sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithFailFast(true), tries), wait}
	}, nil
}

func (lock *redsyncLock) acquire() (bool, error) {
	var err error
	switch {
	case lock.wait == nil:
		err = lock.mutex.Lock()
	case *lock.wait == 0:
		err = lock.mutex.TryLock()
	default:
		ctx, cancel := context.WithTimeout(context.Background(), *lock.wait)
		defer cancel()
		err = lock.mutex.LockContext(ctx)
	}
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	return err == nil, err
}

func (lock *redsyncLock) release() error {
	released, err := lock.mutex.Unlock()
	if !released && err == nil {
		return errors.New("not released")
	}
	return err
}

// rueidislock takes one node; a ttl belongs to a locker, which renews its locks and is told when others release.
type rueidislockLock struct {
	locker func() (rueidislock.Locker, error)
	name   string
	wait   *time.Duration
	cancel context.CancelFunc
}

func openRueidislock(urls []string) (session, error) {
	if len(urls) != 1 {
		return nil, errors.New("rueidislock takes one node")
	}
	options, err := rueidis.ParseURL(urls[0])
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	lockers := map[time.Duration]rueidislock.Locker{}
	return func(name string, ttl time.Duration, wait *time.Duration) lock {
		locker := func() (found rueidislock.Locker, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			if found = lockers[ttl]; found != nil {
				return found, nil
			}
			found, err = rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: options, KeyValidity: ttl, KeyMajority: 1, NoLoopTracking: true,
			})
			if err == nil {
				lockers[ttl] = found
			}
			return found, err
		}
		return &rueidislockLock{locker: locker, name: name, wait: wait}
	}, nil
}

func (lock *rueidislockLock) acquire() (bool, error) {
	locker, err := lock.locker()
	if err != nil {
		return false, err
	}
	switch {
	case lock.wait == nil:
		_, lock.cancel, err = locker.WithContext(context.Background(), lock.name)
	case *lock.wait == 0:
		_, lock.cancel, err = locker.TryWithContext(context.Background(), lock.name)
	default:
		// A context with a deadline would end the lock, too.
		ctx, giveUp := context.WithCancel(context.Background())
		limit := time.AfterFunc(*lock.wait, giveUp)
		_, lock.cancel, err = locker.WithContext(ctx, lock.name)
		if !limit.Stop() && err == nil {
			lock.cancel()
			return false, nil
		}
	}
	if errors.Is(err, rueidislock.ErrNotLocked) || errors.Is(err, context.Canceled) {
		return false, nil
	}
	return err == nil, err
}

func (lock *rueidislockLock) release() error {
	lock.cancel()
	return nil
}

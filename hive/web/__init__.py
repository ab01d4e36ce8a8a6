"""The web page of runs: `hive web` serves it to browsers. A page reads; its actions need a token.

    browser ── GET /api/stream ──> server ──> one Sampler for each run that is watched ──> hive.monitor.poller
            ── POST /api/actions ──> guard (Host, Origin, key) ──> the supervisor's control socket

positions    how far a viewer has read a run's files: the event ids of the stream
sampler      one thread for each watched run; it polls the run once a second and sends each sample to all viewers
curves       the curves of a run as JSON
page         a Snapshot as the words and numbers of the page, made by the functions of the terminal monitor
catalogue    the runs that are served
reading      config, logs, evaluations and actors of one run
guard        which requests are answered: Host, Origin, secrets, sizes, headers
connections  limits of connections: number, time to send a request, time without reading
site         the routes, and the actions: pause, resume, save, set, down
server       sockets, signals and the start of uvicorn
static       the page itself: HTML, CSS and JavaScript modules, without a build step

Only `site`, `guard`, `connections` and `server` import the packages of the extra `web`.
"""

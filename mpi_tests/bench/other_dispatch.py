#!/usr/bin/env python3
"""Empty experiments a second of other systems, for experiments.sh beside them in the same minutes.

  PYTHON mpi_tests/bench/other_dispatch.py optuna|libensemble [--workers 4] [--experiments 4000] [--folder FOLDER]

PYTHON has optuna or libensemble (from the package index). The experiments have three dimensions as the space of
experiments.sh. Optuna: so many processes share a journal in FOLDER, which it syncs after each entry (its
JournalFileBackend). libEnsemble: so many local workers and a manager; nothing is durable until the end. Prints
experiments a second between the first one's beginning and the last one's end.
"""
import argparse
import multiprocessing
import pathlib
import sys
import tempfile


def in_optuna(folder, share):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = optuna.storages.journal.JournalFileBackend(str(folder / 'journal.log'))
    study = optuna.load_study(study_name='empty', storage=optuna.storages.JournalStorage(journal),
                              sampler=optuna.samplers.RandomSampler())

    def objective(trial):
        trial.suggest_int('micro_batch', 1, 200)
        trial.suggest_int('accumulation_steps', 1, 5)
        trial.suggest_int('stage', 0, 3)
        return 0.0

    study.optimize(objective, n_trials=share)


def optuna_times(folder, workers, experiments):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = optuna.storages.journal.JournalFileBackend(str(folder / 'journal.log'))
    study = optuna.create_study(study_name='empty', storage=optuna.storages.JournalStorage(journal))
    processes = [multiprocessing.Process(target=in_optuna, args=(folder, experiments // workers))
                 for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [(trial.datetime_start.timestamp(), trial.datetime_complete.timestamp()) for trial in study.trials]


def empty_simulation(_history, _info, specs):
    import numpy

    return numpy.zeros(1, dtype=specs['out'])


def libensemble_times(folder, workers, experiments):
    import numpy
    from libensemble import Ensemble
    from libensemble.gen_funcs.sampling import uniform_random_sample
    from libensemble.specs import ExitCriteria, GenSpecs, LibeSpecs, SimSpecs

    ensemble = Ensemble(
        libE_specs=LibeSpecs(nworkers=workers, comms='local', ensemble_dir_path=str(folder / 'ensemble'),
                             disable_log_files=True, save_H_and_persis_on_abort=False),
        sim_specs=SimSpecs(sim_f=empty_simulation, inputs=['x'], out=[('f', float)]),
        gen_specs=GenSpecs(gen_f=uniform_random_sample, out=[('x', float, (3,))],
                           user={'gen_batch_size': experiments, 'lb': numpy.zeros(3), 'ub': numpy.ones(3)}),
        exit_criteria=ExitCriteria(sim_max=experiments))
    ensemble.add_random_streams()
    history, _, _ = ensemble.run()
    ended = history[history['sim_ended']]
    return list(zip(ended['sim_started_time'], ended['sim_ended_time']))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('system', choices=['optuna', 'libensemble'])
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--experiments', type=int, default=4000)
    parser.add_argument('--folder')
    arguments = parser.parse_args()
    times_of = {'optuna': optuna_times, 'libensemble': libensemble_times}[arguments.system]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        times = times_of(pathlib.Path(folder), arguments.workers, arguments.experiments)
    took_s = max(end for _, end in times) - min(begin for begin, _ in times)
    print(f'{arguments.system}: {len(times)} experiments in {took_s:.3f} s: {len(times) / took_s:.0f}/s '
          f'({arguments.workers} workers)')


if __name__ == '__main__':
    sys.exit(main())
